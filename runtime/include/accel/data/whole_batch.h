#pragma once

#include <accel/export.h>

namespace accel::detail {

/// While one lives, random numbers and batch norm in this thread are those of
/// the tensors at hand, not of a global batch that they are a part of. For code
/// that works on complete batches while `GradientState` still says which rows
/// of one this process holds: samplers and data sets. Guards nest.
class ACCEL_API WholeBatchGuard {
 public:
  WholeBatchGuard();
  ~WholeBatchGuard();
  WholeBatchGuard(const WholeBatchGuard&) = delete;
  WholeBatchGuard& operator=(const WholeBatchGuard&) = delete;

  /// True in a thread in which a guard lives.
  static bool active();
};

/// Whether `flag` is true on at least one process. Every process must call it.
ACCEL_API bool on_any_process(bool flag);

} // namespace accel::detail
