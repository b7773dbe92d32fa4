#include "checkpoint/direct_file.h"

#include "checkpoint/files.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

namespace accel::checkpoint {

namespace {

/// Below this the system's cache is quicker than a thread and two syncs.
constexpr uint64_t kWorthIt = 64 << 20;

bool is_known(int fd) {
  struct statfs system {};
  return ::fstatfs(fd, &system) == 0 &&
      (system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC);
}

/// Whether writes go past the cache from now on, or, with `direct` false, again
/// through it.
bool set_direct(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 &&
      ::fcntl(
          fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

} // namespace

void DirectFile::Free::operator()(char* memory) const {
  std::free(memory);
}

std::unique_ptr<DirectFile> DirectFile::create(
    int fd, const std::string& path, uint64_t expected) {
  if (expected < kWorthIt || !is_known(fd)) {
    return nullptr;
  }
  // In one place on the disk; and a disk that is too small says so now.
  if (::fallocate(
          fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(expected)) != 0) {
    TORCH_CHECK(
        errno != ENOSPC && errno != EFBIG && errno != EDQUOT,
        "Cannot write ",
        in_quotes(path),
        ", which takes ",
        expected,
        " bytes: ",
        system_message(errno));
  }
  if (!set_direct(fd, true)) {
    return nullptr;
  }
  try {
    std::unique_ptr<DirectFile> file(new DirectFile(fd, path));
    if (file->buffer_) {
      file->thread_ = std::thread(&DirectFile::work, file.get());
      return file;
    }
  } catch (const std::system_error&) {
    // no more threads to be had
  }
  set_direct(fd, false);
  return nullptr;
}

DirectFile::DirectFile(int fd, std::string path)
    : fd_(fd),
      path_(std::move(path)),
      buffer_(
          static_cast<char*>(std::aligned_alloc(kBlock, kPieces * kPiece))) {}

DirectFile::~DirectFile() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

/// To be called with `mutex_` held.
void DirectFile::check() const {
  TORCH_CHECK(
      error_ == 0,
      "Cannot write ",
      in_quotes(path_),
      ": ",
      system_message(error_));
}

void DirectFile::write(const char* data, size_t size) {
  while (size > 0) {
    if (filled_ == 0) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(
          lock, [&] { return ready_ < written_ + kPieces || error_ != 0; });
      check();
    }
    const size_t part = std::min(size, kPiece - filled_);
    // Only this thread changes `ready_`.
    std::memcpy(piece(ready_) + filled_, data, part);
    filled_ += part;
    data += part;
    size -= part;
    if (filled_ == kPiece) {
      hand_over();
    }
  }
}

void DirectFile::hand_over() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++ready_;
  }
  changed_.notify_all();
  filled_ = 0;
}

void DirectFile::finish() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return ready_ == written_ || error_ != 0; });
    check();
  }
  // The thread has nothing to do any more. What is no whole block goes through
  // the cache.
  const uint64_t begin = ready_ * kPiece;
  const size_t blocks = filled_ / kBlock * kBlock;
  write_at(begin, piece(ready_), blocks);
  if (error_ == 0 && !set_direct(fd_, false)) {
    error_ = errno;
  }
  write_at(begin + blocks, piece(ready_) + blocks, filled_ - blocks);
  check();
}

/// The thread's: writes whole pieces, until there is an error or no more work.
void DirectFile::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || written_ < ready_; });
    if (ends_) {
      return;
    }
    const uint64_t number = written_;
    lock.unlock();
    write_at(number * kPiece, piece(number), kPiece);
    lock.lock();
    ++written_;
    changed_.notify_all();
    if (error_ != 0) {
      return;
    }
  }
}

/// Leaves the error in `error_`; after one, nothing more is written.
void DirectFile::write_at(uint64_t offset, const char* data, size_t size) {
  int error = 0;
  while (size > 0 && error == 0) {
    const ssize_t count =
        ::pwrite(fd_, data, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      error = count < 0 ? errno : ENOSPC;
      break;
    }
    data += count;
    offset += static_cast<uint64_t>(count);
    size -= static_cast<size_t>(count);
  }
  if (error != 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = error;
  }
}

} // namespace accel::checkpoint
