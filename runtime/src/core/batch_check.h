#pragma once

#include "core/call_site.h"

#include <accel/detail/communicator.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::detail {

/// Whether all processes have made the same whole batch, of which each then
/// takes its part (`Accelerator::distribute`): where they have not, through a
/// seed from the clock or a file that another process sees differently, the
/// parts do not make one batch, and nothing else would tell.
///
/// The comparison runs while the model does: `begin` starts it, `end` waits.
class BatchCheck {
 public:
  /// Starts the comparison. Every process must call it; one that was begun
  /// before has ended. `operation` and `site`: what splits the batch, and where.
  void begin(
      Communicator& communicator,
      const std::vector<at::Tensor>& tensors,
      const char* operation,
      const CallSite& site);

  /// Waits for it. Throws `c10::Error` on all processes where they differ.
  /// Every process must call it, or none. Does nothing when none is under way.
  void end(Communicator& communicator);

  /// False with ACCEL_CHECK_BATCHES=0, which all processes must have alike.
  static bool enabled();

 private:
  /// Sizes, dtypes, and content in pieces that are spread over each tensor.
  static uint64_t fingerprint_of(const std::vector<at::Tensor>& tensors);

  uint64_t mine_ = 0;
  at::Tensor sum_;
  Communicator::Waiter wait_;
  const char* operation_ = "";
  CallSite site_;
};

} // namespace accel::detail
