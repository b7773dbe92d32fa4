#include "written_files.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace accel::detail {
namespace {

struct File {
  std::thread::id thread; ///< That opened it.
  bool read = false; ///< Since it was opened last.
};

std::mutex mutex;

std::map<std::string, File>& files() {
  static std::map<std::string, File> all;
  return all;
}

/// One name for each file, however the program spells it.
std::string name_of(const std::string& path) {
  std::error_code error;
  const auto name = std::filesystem::weakly_canonical(path, error);
  return error ? path : name.string();
}

} // namespace

WrittenFiles& WrittenFiles::get() {
  static WrittenFiles instance;
  return instance;
}

bool WrittenFiles::opened(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  File& file = files()[name_of(path)];
  const bool waits = file.read && file.thread == std::this_thread::get_id();
  TORCH_CHECK(
      !file.read || waits,
      "accel: '",
      path,
      "' is opened for writing on another thread than before, while other processes may still be reading it. Write and read it on the thread that trains.");
  file = {std::this_thread::get_id(), false};
  return waits;
}

bool WrittenFiles::read(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = files().find(name_of(path));
  if (found == files().end()) {
    return false;
  }
  TORCH_CHECK(
      found->second.thread == std::this_thread::get_id(),
      "accel: '",
      path,
      "' is read on another thread than the one that opened it for writing, where the processes cannot wait for each other: it may not be complete. Read it on the thread that trains, behind accelerator.wait_for_everyone().");
  found->second.read = true;
  return true;
}

} // namespace accel::detail
