#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace accel::detail {

/// The accumulation window of an optimizer in `match_single_device`: of so many of its
/// steps the last one updates the parameters, with the mean of the gradients that each
/// would have seen.
///
/// Gradients are taken where the optimizer is asked to step, not where a backward ends:
/// what the program clears before (`zero_grad`), such as what the generator's loss has
/// left in a critic, is no part of them. They stay in their places, too, so that the
/// program finds what it finds on one device.
class GradientWindow {
 public:
  /// A step that was left out: adds the gradients of `parameters`.
  void add(const std::vector<at::Tensor>& parameters);

  /// Before the step that is not: the gradients become the mean of the window's,
  /// this step's included. Does nothing where they are that already. Returns whether
  /// they have changed.
  bool complete(const std::vector<at::Tensor>& parameters);

  /// The mean so far, with `parameter`'s gradient; undefined where there is none.
  at::Tensor mean(const at::Tensor& parameter) const;

  /// Steps that were left out.
  int64_t steps() const {
    return steps_;
  }
  bool completed() const {
    return completed_;
  }
  /// Whether they have left gradients.
  bool holds() const {
    return !sums_.empty();
  }
  /// The step was made, or nothing is as it was before.
  void end();

 private:
  at::Tensor sum(const at::Tensor& parameter) const;

  int64_t steps_ = 0;
  bool completed_ = false;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> sums_;
};

} // namespace accel::detail
