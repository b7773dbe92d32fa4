#include "writer.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "error.h"

namespace accel::launcher {
namespace {

constexpr size_t kCongested = size_t{4} << 20;
constexpr size_t kRelieved = size_t{1} << 20;
constexpr size_t kBlock = size_t{64} << 10;

/// Writes all of it; returns 0 or the errno.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      // Somebody made the descriptor that we inherited non-blocking.
      ::usleep(1000);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

} // namespace

Writer::Writer() : wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wakeup_) {
    throw_errno("cannot make an event descriptor");
  }
  thread_ = std::thread([this] { run(); });
}

Writer::~Writer() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Writer::write(int fd, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (errors_.count(fd) != 0) {
      return;
    }
    // The front block is being written and must not grow.
    if (queue_.size() > 1 && queue_.back().fd == fd &&
        queue_.back().bytes.size() < kBlock) {
      queue_.back().bytes += bytes;
    } else {
      queue_.push_back({fd, std::string(bytes)});
    }
    waiting_bytes_ += bytes.size();
  }
  changed_.notify_all();
}

bool Writer::congested() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return waiting_bytes_ > kCongested;
}

bool Writer::idle() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.empty();
}

int Writer::error(int fd) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = errors_.find(fd);
  return found == errors_.end() ? 0 : found->second;
}

void Writer::acknowledge() {
  uint64_t count;
  (void)!::read(wakeup_.get(), &count, sizeof(count));
}

void Writer::wake_up() {
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
}

void Writer::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    // References into a deque survive push_back.
    const Block& block = queue_.front();
    const bool dropped = errors_.count(block.fd) != 0;
    lock.unlock();
    const int error = dropped ? 0 : write_all(block.fd, block.bytes);
    lock.lock();
    if (error != 0) {
      errors_.emplace(block.fd, error);
    }
    const size_t before = waiting_bytes_;
    waiting_bytes_ -= block.bytes.size();
    queue_.pop_front();
    if (error != 0 || queue_.empty() ||
        (before > kRelieved && waiting_bytes_ <= kRelieved)) {
      wake_up();
    }
  }
}

} // namespace accel::launcher
