#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace accel::launcher {

/// Brings to one place (a terminal, a file, a pipe) what process 0 writes, byte
/// for byte and at once, and the whole lines of others.
///
/// A line of another process does not begin in the middle of one of process 0:
/// it waits until that one has ended. Where it has to be seen earlier than that,
/// it begins a line of its own, and the rest of the interrupted one follows
/// behind it. Lines keep their order.
class Interleaver {
 public:
  using Clock = std::chrono::steady_clock;
  /// Takes what is to be written to the descriptor `fd`.
  using Sink = std::function<void(int fd, std::string_view bytes)>;

  /// More than this does not wait.
  static constexpr size_t kMostWaiting = size_t{4} << 20;

  explicit Interleaver(Sink sink) : sink_(std::move(sink)) {}

  /// Writes bytes as they are, at once.
  void bytes(int fd, std::string_view bytes);

  /// Adds a line, which is given without its end. It is written by the next
  /// `settle`, unless a line of `bytes` is unfinished then; after `latest` that
  /// one is interrupted.
  void line(int fd, std::string_view text, Clock::time_point latest);

  /// For a terminal: a state of a progress bar, which what follows overwrites.
  /// While a line of `bytes` is unfinished such states are left out.
  void progress(int fd, std::string_view text);

  /// Writes the lines that need not wait, or no longer at the time `now`.
  void settle(Clock::time_point now);

  /// Writes all lines.
  void release();

  /// There are no more `bytes`, for now: nothing waits for the end of a line.
  void end_of_bytes();

  /// When `settle` has to be called even though nothing happens.
  Clock::time_point deadline() const {
    return deadline_;
  }

 private:
  struct Waiting {
    int fd;
    std::string text;
  };

  void write_waiting();

  Sink sink_;
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  Clock::time_point deadline_ = Clock::time_point::max();
  /// The last of `bytes` did not end a line.
  bool unfinished_ = false;
  /// And none follow that would end it.
  bool ended_ = false;
  /// The last that was added is a state of a progress bar.
  bool progress_ = false;
};

} // namespace accel::launcher
