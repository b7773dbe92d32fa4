#include "checkpoint/removals.h"

#include <accel/checkpoint/directory.h>

#include <cstdint>
#include <filesystem>
#include <system_error>

namespace fs = std::filesystem;

namespace accel::checkpoint {

namespace {

/// Fewer bytes are gone before anybody notices.
constexpr uint64_t kLargeDirectory = 64 << 20;

uint64_t bytes_in(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end;
       !error && entry != end;
       entry.increment(error)) {
    std::error_code no_file;
    const uint64_t size = entry->file_size(no_file);
    bytes += no_file ? 0 : size;
  }
  return bytes;
}

} // namespace

void remove_now(const std::string& directory) {
  fs::remove_all(directory);
}

void Removals::remove(const std::string& directory) {
  if (bytes_in(directory) >= kLargeDirectory) {
    try {
      under_way_.push_back(std::async(std::launch::async, [directory] {
        std::error_code ignored;
        fs::remove_all(directory, ignored);
      }));
      return;
    } catch (const std::system_error&) {
      // no more threads to be had
    }
  }
  remove_now(directory);
}

void Removals::wait() {
  under_way_.clear(); // A future of std::async waits for what it runs.
}

} // namespace accel::checkpoint
