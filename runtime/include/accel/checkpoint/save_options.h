#pragma once

#include <torch/arg.h>

namespace accel {

/// How `Accelerator::save_state` saves.
class SaveStateOptions {
 public:
  /// Return as soon as everything has been copied to host memory; a thread
  /// writes it while the program goes on, and completes the checkpoint by
  /// itself. What is written is what was there at the call. Needs as much host
  /// memory as the checkpoint has bytes, until it is written.
  TORCH_ARG(bool, asynchronous) = false;
};

} // namespace accel
