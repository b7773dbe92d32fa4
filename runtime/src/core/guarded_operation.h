#pragma once

#include "core/operation_log.h"

#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace accel::detail {

/// What the collectives of one channel have in common, whatever carries them:
/// they are logged while they are waited for, and what they throw says which
/// operation failed, where, and what is known about the others.
struct GuardedOperations {
  /// Among the processes that take part.
  int64_t rank = 0;
  int64_t size = 1;
  /// Of the program.
  int64_t world_size = 1;
  Channel channel = Channel::kMain;
  /// Null where all processes of the program do.
  OperationGroupPtr group;
  std::shared_ptr<OperationLog> log;
  /// Why the connections were cut; empty where they were not
  /// (`Watchdog::verdict`).
  std::function<std::string()> verdict;

  /// Counts an operation; `tensor` may be undefined. Throws `c10::Error` where
  /// not all processes are (`AloneGuard`).
  Operation begin(const char* name, const at::Tensor& tensor) const;
  /// Runs `call`, a part of `operation`. Throws `c10::Error` where it throws.
  void run(const Operation& operation, const std::function<void()>& call) const;
  /// This process as messages name it: "process 3 of 4".
  std::string process() const;
};

/// The message without the C++ backtrace that c10 adds.
std::string message_of(const std::exception& error);

} // namespace accel::detail
