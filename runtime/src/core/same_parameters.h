#pragma once

#include "gradients/parameters.h"

#include <accel/detail/communicator.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace accel::detail {

/// Whether the parameters are the same on all processes while they train
/// (`match_single_device`): a program that writes to them on some processes only, or
/// writes other numbers, trains several models, whose gradients make no sense together.
///
/// What is compared in a backward is one number (`digest`): how often each parameter
/// has been written to, and some of its values, others every time. It tells where to
/// look closer, not that something is wrong: the main process may put averaged weights
/// in their place, save them, and put the others back. On GPUs, and where each process
/// has a part of the values, it counts writes only.
///
/// So is whether there are gradients before a backward: where only some processes have
/// called zero_grad, the others add to what was.
class SameParameters {
 public:
  using All = std::vector<std::unique_ptr<Parameter>>;

  /// To be asked equally often on all processes.
  uint64_t digest(const All& parameters);

  /// Compares all values. Throws `c10::Error` on all processes where a parameter's are
  /// not the same, or only some have a gradient; what differs as rounding does is not looked at again. All processes
  /// must call it.
  void look_closer(Communicator& communicator, const All& parameters);

 private:
  uint64_t asked_ = 0;
  /// Values are the same but for rounding: only writes count from now on.
  bool rounded_ = false;
};

} // namespace accel::detail
