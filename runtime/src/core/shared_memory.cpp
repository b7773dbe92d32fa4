#include "core/shared_memory.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

namespace accel::detail {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// What a process says of itself. Zeros are its beginning.
struct SharedMemory::Place {
  /// Read by everybody, written by its process alone.
  alignas(64) std::atomic<uint32_t> meetings;
  std::atomic<uint32_t> left;
  /// Those who sleep until `meetings` changes.
  alignas(64) std::atomic<uint32_t> sleepers;
};

namespace {

/// Awake for as long as waking up would take, and a processor with nothing to
/// do falls asleep itself: in a virtual machine that costs a tenth of a
/// millisecond and more.
constexpr microseconds kAwake{200};
/// Between looks at whether the other still lives.
constexpr milliseconds kLook{20};
/// After that a wait is a long one.
constexpr milliseconds kLong{500};

static_assert(
    std::atomic<uint32_t>::is_always_lock_free &&
        sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
    "shared between processes, and the kernel waits on it");

std::string last_error() {
  return std::strerror(errno);
}

/// Shared between processes, so without FUTEX_PRIVATE_FLAG.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, milliseconds most) {
  timespec time{};
  time.tv_nsec = std::chrono::nanoseconds(most).count();
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

struct flock byte_of(int64_t rank, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

std::string new_name() {
  std::random_device random;
  return "/accel-" + std::to_string(::getpid()) + "-" +
      std::to_string((uint64_t{random()} << 32) | random());
}

} // namespace

SharedMemory::SharedMemory(
    const std::string& name,
    int64_t rank,
    int64_t size,
    int64_t bytes,
    milliseconds timeout)
    : name_(name.empty() ? new_name() : name),
      rank_(rank),
      size_(size),
      timeout_(timeout) {
  const bool make = name.empty();
  const auto places = static_cast<int64_t>(sizeof(Place)) * size;
  mapped_ = places + bytes;
  file_ = ::shm_open(
      name_.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);
  TORCH_CHECK(file_ >= 0, "shm_open ", name_, ": ", last_error());
  const auto give_up = [&](const char* what, const std::string& why) {
    ::close(file_);
    if (make) {
      ::shm_unlink(name_.c_str());
    }
    TORCH_CHECK(false, what, " ", name_, ", ", mapped_, " bytes: ", why);
  };
  // With its pages: where there are none left a later access would be SIGBUS.
  if (make) {
    if (const int error = ::posix_fallocate(file_, 0, mapped_); error != 0) {
      give_up("posix_fallocate", std::strerror(error));
    }
  }
  auto lock = byte_of(rank, F_WRLCK);
  if (::fcntl(file_, F_SETLK, &lock) != 0) {
    give_up("fcntl", last_error());
  }
  void* memory = ::mmap(
      nullptr,
      static_cast<size_t>(mapped_),
      PROT_READ | PROT_WRITE,
      MAP_SHARED,
      file_,
      0);
  if (memory == MAP_FAILED) {
    give_up("mmap", last_error());
  }
  memory_ = static_cast<char*>(memory);
  data_ = memory_ + places;
}

SharedMemory::~SharedMemory() {
  leave();
  ::munmap(memory_, static_cast<size_t>(mapped_));
  ::close(file_);
}

void SharedMemory::unlink() {
  ::shm_unlink(name_.c_str());
}

SharedMemory::Place& SharedMemory::place(int64_t rank) const {
  return reinterpret_cast<Place*>(memory_)[rank];
}

bool SharedMemory::has_come(int64_t rank) const {
  const uint32_t theirs = place(rank).meetings.load(std::memory_order_acquire);
  // Nobody is further than one meeting from the others.
  return static_cast<int32_t>(theirs - meetings_) >= 0;
}

bool SharedMemory::has_ended(int64_t rank) const {
  auto lock = byte_of(rank, F_WRLCK);
  return ::fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

void SharedMemory::wake() {
  auto& mine = place(rank_);
  // Sequentially consistent on both sides: whoever is about to sleep has either
  // been counted here, or sees what was written before.
  if (mine.sleepers.load() != 0) {
    futex_wake_all(mine.meetings);
  }
}

void SharedMemory::meet() {
  ++meetings_;
  place(rank_).meetings.store(meetings_);
  wake();
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      wait_for(rank);
    }
  }
}

namespace {
thread_local std::chrono::nanoseconds waited_so_far{0};
} // namespace

std::chrono::nanoseconds SharedMemory::waited() {
  return waited_so_far;
}

void SharedMemory::wait_for(int64_t rank) {
  if (has_come(rank)) {
    return;
  }
  auto& other = place(rank);
  const auto start = steady_clock::now();
  auto look = start + kLook;
  bool told = on_long_wait_ == nullptr;
  while (!has_come(rank)) {
    TORCH_CHECK(!left_, "the connection was cut");
    // It may have come, then ended.
    TORCH_CHECK(
        other.left.load() == 0 || has_come(rank),
        "process ",
        rank,
        " has closed its connection");
    const auto now = steady_clock::now();
    if (now < start + kAwake) {
      sched_yield();
      continue;
    }
    if (now >= look) {
      TORCH_CHECK(
          !has_ended(rank) || has_come(rank), "process ", rank, " has ended");
      TORCH_CHECK(
          now - start < timeout_,
          "Timed out waiting ",
          timeout_.count(),
          " ms for process ",
          rank);
      look = now + kLook;
      if (!told && now - start >= kLong) {
        told = true;
        on_long_wait_();
      }
    }
    other.sleepers.fetch_add(1);
    const uint32_t seen = other.meetings.load();
    if (static_cast<int32_t>(seen - meetings_) < 0 && other.left.load() == 0) {
      futex_wait(other.meetings, seen, kLook);
    }
    other.sleepers.fetch_sub(1);
  }
  waited_so_far += steady_clock::now() - start;
}

void SharedMemory::leave() {
  left_ = true;
  place(rank_).left.store(1);
  wake();
}

} // namespace accel::detail
