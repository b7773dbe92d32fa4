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
  /// Return when everything is on the disk. Without it the system writes it
  /// there within half a minute or so, which is all that Accelerate's
  /// save_state promises: a program that is killed loses nothing, but a machine
  /// that stops leaves a checkpoint whose files are not whole. Loading finds
  /// that by their checksums, and `resume` goes on at an earlier one, if there
  /// is one: keep at least two (`total_limit`).
  TORCH_ARG(bool, sync) = true;
};

} // namespace accel
