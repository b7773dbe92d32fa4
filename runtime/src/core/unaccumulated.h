#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::detail {

class Registry;

/// Looks, in the first windows of a run that accumulates gradients, whether parameters
/// that are trained are changed in a micro-step although no accelerated optimizer has
/// them: by an optimizer of LibTorch's own type, or by the program itself.
class UnaccumulatedUpdates {
 public:
  /// At the beginning of a micro-step of a window of `num_steps`.
  void begin(Registry& registry, int64_t num_steps);
  /// At its end. True once, where one has been changed.
  bool found();

 private:
  struct Seen {
    at::Tensor parameter;
    int64_t version;
    /// Some of its values: LibTorch's optimizers write past the version.
    at::Tensor values;
  };
  std::vector<Seen> seen_;
  int64_t micro_steps_ = 0;
  bool done_ = false;
};

} // namespace accel::detail
