#pragma once

#include <accel/export.h>

namespace accel::detail {

class Runtime;

/// While it lives, gradients are those of this process alone: `backward` does not
/// average them, and optimizers step all the same. To be made on all processes.
class ACCEL_API LocalTraining {
 public:
  /// Throws with `match_single_device`. Without an Accelerator, or with one process, it
  /// does nothing.
  LocalTraining();
  ~LocalTraining();
  LocalTraining(const LocalTraining&) = delete;
  LocalTraining& operator=(const LocalTraining&) = delete;

 private:
  Runtime* runtime_;
};

} // namespace accel::detail
