#pragma once

#include <accel/export.h>

#include <cstdint>

namespace accel::detail {

/// What this thread does. Operators on plain tensors are counted by it in the
/// placement report: those of a data set and of an optimizer's step are no work
/// on a batch, which could be shared out. Those of the library itself (kOwn), as
/// of the reducer, are not counted.
enum class Phase : uint8_t { kTraining, kLoading, kUpdating, kOwn };

/// Of this thread, to the end of the scope.
class ACCEL_API PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

  static Phase current();

 private:
  Phase previous_;
};

} // namespace accel::detail
