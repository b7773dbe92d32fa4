#pragma once

#include <torch/arg.h>

namespace accel {

/// How `Accelerator::load_state` loads.
class LoadStateOptions {
 public:
  /// Read all files and compare their checksums before anything is changed.
  /// Without it only the files' sizes and structure are looked at, which saves
  /// going over them once: for checkpoints that have just been verified, or on
  /// file systems that keep checksums themselves.
  TORCH_ARG(bool, verify_checksums) = true;
};

} // namespace accel
