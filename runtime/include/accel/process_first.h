#pragma once

#include <accel/detail/alone.h>
#include <accel/export.h>

#include <optional>

namespace accel {

/// One process does the scope's work before the others begin it
/// (`Accelerator::main_process_first`). Also when an exception leaves the scope
/// the others go on. Operations that need all processes throw in the scope.
class ACCEL_API ProcessFirstGuard {
 public:
  /// Waits until the first one's guard has ended, where this process is not it.
  explicit ProcessFirstGuard(bool is_first);
  ~ProcessFirstGuard();
  ProcessFirstGuard(const ProcessFirstGuard&) = delete;
  ProcessFirstGuard& operator=(const ProcessFirstGuard&) = delete;

 private:
  bool is_first_;
  std::optional<detail::AloneGuard> alone_;
};

} // namespace accel
