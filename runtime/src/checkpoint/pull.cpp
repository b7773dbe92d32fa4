#include "checkpoint/pull.h"

#include "checkpoint/file_pieces.h"
#include "checkpoint/mapped_memory.h"

#include <exception>
#include <optional>
#include <system_error>
#include <utility>

namespace accel::checkpoint {

namespace {

/// Fewer bytes are there before a thread has been started.
constexpr uint64_t kWorthAThread = 1 << 20;

/// Whether a part seems to be in memory: looked at in a few places. A mistake
/// only costs time. Asked by mincore, because a read that shall not wait
/// (RWF_NOWAIT) begins to read ahead from wherever it has found nothing, in
/// small pieces.
bool in_memory(const InputFile& file, const FilePart& part) {
  constexpr uint64_t kPlaces = 8;
  const uint64_t page = page_size();
  const uint64_t begin = part.offset / page * page;
  const MappedMemory memory(
      static_cast<size_t>(part.offset - begin + part.size),
      PROT_READ,
      MAP_SHARED,
      file.descriptor(),
      static_cast<off_t>(begin));
  for (uint64_t i = 0; memory && i <= kPlaces; ++i) {
    const uint64_t place = (memory.size() - 1) / kPlaces * i / page * page;
    unsigned char resident = 0;
    if (::mincore(memory.data() + place, 1, &resident) != 0 ||
        (resident & 1) == 0) {
      return false;
    }
  }
  return static_cast<bool>(memory);
}

} // namespace

FilePull::FilePull(std::vector<FilePart> parts) : parts_(std::move(parts)) {
  uint64_t bytes = 0;
  for (const auto& part : parts_) {
    bytes += part.size;
  }
  if (bytes < kWorthAThread) {
    done_ = parts_.size();
    return;
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    done_ = parts_.size(); // no thread to be had: who reads waits for the disk
  }
}

FilePull::~FilePull() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

void FilePull::wait(size_t index) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_ > index; });
}

void FilePull::run() {
  // One opened file for all of its parts: the system remembers with it where
  // its reader is.
  std::optional<InputFile> file;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const FilePart& part = parts_[i];
    try {
      if (!file || file->path() != part.path) {
        file.emplace(part.path);
      }
      if (part.size > 0 && !in_memory(*file, part)) {
        for_each_piece(
            *file, part.offset, part.size, [](const char*, size_t) {});
      }
    } catch (const std::exception&) {
      file.reset(); // whoever reads the part says what is wrong with it
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = i + 1;
    }
    changed_.notify_all();
  }
}

} // namespace accel::checkpoint
