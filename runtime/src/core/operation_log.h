#pragma once

#include <accel/detail/communicator.h>

#include "core/call_site.h"

#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// One collective operation as this process sees it.
struct Operation {
  Channel channel = Channel::kMain;
  /// From 1, in its channel: the processes' operations of equal number belong
  /// together.
  uint64_t number = 0;
  const char* name = "";
  /// What it was given; nothing for a barrier.
  std::optional<at::ScalarType> dtype;
  c10::SmallVector<int64_t, 5> sizes;
  CallSite site;

  /// "all_reduce #12 of Float [10, 3]".
  std::string describe() const;
};

/// What a process is doing, for the others.
struct ProcessStatus {
  enum class Kind {
    /// It has not answered.
    kSilent,
    /// It is in none of the operations.
    kElsewhere,
    kWaiting,
    /// It has ended, or is about to.
    kLeft,
  };
  Kind kind = Kind::kSilent;
  int64_t channel = 0;
  uint64_t number = 0;
  /// Of the operation that it waits in, else of its last one.
  std::string operation;
  std::string site;
  /// For how long.
  double seconds = 0;
  /// How many operations it has begun, by channel.
  std::array<uint64_t, 3> begun{};

  std::string to_text() const;
  static ProcessStatus from_text(const std::string& text);
};

/// Which operations this process has begun, and in which it waits. Thread-safe.
class OperationLog {
 public:
  using Clock = std::chrono::steady_clock;

  /// Counts an operation. `tensor` may be undefined.
  Operation begin(Channel channel, const char* name, const at::Tensor& tensor);

  /// While it lives, this process waits in the operation.
  class Waiting {
   public:
    Waiting(OperationLog& log, const Operation& operation);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    OperationLog& log_;
    size_t slot_;
  };

  /// No more operations will come.
  void leave();

  /// Since when this process has been waiting in an operation, the longest.
  std::optional<Clock::time_point> waiting_since() const;

  /// Takes some time, for the call site.
  ProcessStatus status() const;

 private:
  struct Slot {
    uint64_t begun = 0;
    bool waiting = false;
    Operation operation;
    Clock::time_point since;
  };

  const Slot* longest() const;

  mutable std::mutex mutex_;
  std::array<Slot, 3> slots_;
  size_t last_ = 0;
  bool left_ = false;
};

/// What the processes' statuses say, a line for each.
std::string describe(const std::vector<ProcessStatus>& processes);

/// True where the processes wait in operations that can never meet: one has
/// ended without having come to the operation that another one waits in, two
/// are in different operations of the same number, or all wait, but not in the
/// same. For the last two a process counts as waiting when it has done so for
/// `stuck` seconds: that they were asked at different moments does not confuse
/// it.
bool out_of_step(const std::vector<ProcessStatus>& processes, double stuck);

} // namespace accel::detail
