#pragma once

#include <accel/export.h>

namespace accel {

/// One process does the scope's work before the others begin it
/// (`Accelerator::main_process_first`). Also when an exception leaves the scope
/// the others go on.
class ACCEL_API ProcessFirstGuard {
 public:
  /// Waits until the first one's guard has ended, where this process is not it.
  explicit ProcessFirstGuard(bool is_first);
  ~ProcessFirstGuard();
  ProcessFirstGuard(const ProcessFirstGuard&) = delete;
  ProcessFirstGuard& operator=(const ProcessFirstGuard&) = delete;

 private:
  bool is_first_;
};

} // namespace accel
