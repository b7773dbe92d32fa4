#pragma once

#include <accel/export.h>

namespace accel::detail {

/// Marks what not all processes run at the same time (`on_main_process`,
/// `main_process_first`): operations that need all of them throw there, instead
/// of waiting for ever. Of this thread, and to the end of the scope.
class ACCEL_API AloneGuard {
 public:
  /// `region`: "on_main_process, which the other processes do not run"; lives as
  /// long as the guard. Marks nothing where it is null, and where there is only
  /// one process.
  explicit AloneGuard(const char* region);
  ~AloneGuard();
  AloneGuard(const AloneGuard&) = delete;
  AloneGuard& operator=(const AloneGuard&) = delete;

  /// The region that this thread is in; null where it is in none.
  static const char* region();

 private:
  const char* previous_;
};

} // namespace accel::detail
