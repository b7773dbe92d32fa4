#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace accel::detail {

/// Memory that the processes of one host have in common, and a counter for each
/// of them in it, by which they wait for each other.
///
/// Somebody who waits notices within a fraction of a second that another
/// process has ended, however it ended: every process holds a lock of the
/// kernel's (fcntl) on its byte of the file behind the memory.
class SharedMemory {
 public:
  /// Makes (`name` empty: a new name is found) or opens the memory, `bytes`
  /// for the caller's use beside the counters. All processes must give the same
  /// `size`, `bytes`. Throws `c10::Error` where the kernel refuses.
  SharedMemory(
      const std::string& name,
      int64_t rank,
      int64_t size,
      int64_t bytes,
      std::chrono::milliseconds timeout);
  /// Tells the others, as `leave` does.
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// For the other processes of the host.
  const std::string& name() const {
    return name_;
  }
  /// Takes the name away, once everybody has opened it; the memory lives until
  /// the last process has ended.
  void unlink();

  /// `bytes` bytes, aligned to 64; zeros at first.
  char* data() const {
    return data_;
  }

  /// Counts this process on and waits for the others to have counted as far:
  /// what each has written to `data` before, all can read after. Throws where a
  /// process has ended or has left, after `timeout`, and after `leave`.
  void meet();

  /// How long the calling thread has waited in `meet` so far, of any object. For
  /// reports.
  static std::chrono::nanoseconds waited();

  /// `call` is called by the thread that waits in `meet`, once it has done so for
  /// half a second, and once in each such meeting.
  void on_long_wait(std::function<void()> call) {
    on_long_wait_ = std::move(call);
  }

  /// Whoever waits, here or in another process, throws from now on. From any
  /// thread.
  void leave();

 private:
  struct Place;

  Place& place(int64_t rank) const;
  /// Whether process `rank` has come as far as this one.
  bool has_come(int64_t rank) const;
  void wait_for(int64_t rank);
  bool has_ended(int64_t rank) const;
  void wake();

  std::string name_;
  const int64_t rank_;
  const int64_t size_;
  const std::chrono::milliseconds timeout_;
  int file_ = -1;
  char* memory_ = nullptr;
  int64_t mapped_ = 0;
  char* data_ = nullptr;
  /// How often this process has met the others; wraps.
  uint32_t meetings_ = 0;
  std::atomic<bool> left_{false};
  std::function<void()> on_long_wait_;
};

} // namespace accel::detail
