#include "gradients/window.h"

#include <accel/detail/phase.h>
#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace accel::detail {

at::Tensor GradientWindow::sum(const at::Tensor& parameter) const {
  const auto& gradient = parameter.grad();
  const auto found = sums_.find(parameter.unsafeGetTensorImpl());
  if (found == sums_.end()) {
    return gradient.defined() ? gradient.clone() : at::Tensor();
  }
  if (!gradient.defined()) {
    return found->second;
  }
  // A dense one cannot be added to a sparse one.
  return found->second.is_sparse() && !gradient.is_sparse()
      ? gradient.add(found->second)
      : found->second.add(gradient);
}

void GradientWindow::add(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  const PhaseScope own(Phase::kOwn);
  for (const auto& parameter : parameters) {
    if (!parameter.grad().defined()) {
      continue;
    }
    const auto found = sums_.find(parameter.unsafeGetTensorImpl());
    const bool in_place = found != sums_.end() && !found->second.is_sparse() &&
        !parameter.grad().is_sparse() &&
        !distributed::is_distributed(found->second) &&
        !distributed::is_distributed(parameter.grad());
    if (in_place) {
      found->second.add_(parameter.grad());
    } else {
      sums_[parameter.unsafeGetTensorImpl()] = sum(parameter);
    }
  }
  ++steps_;
}

bool GradientWindow::complete(const std::vector<at::Tensor>& parameters) {
  if (completed_ || steps_ == 0) {
    return false;
  }
  const at::NoGradGuard no_grad;
  const PhaseScope own(Phase::kOwn);
  for (const auto& parameter : parameters) {
    const auto gradient = mean(parameter);
    if (gradient.defined()) {
      parameter.mutable_grad() = gradient;
    }
  }
  completed_ = true;
  sums_.clear();
  return true;
}

at::Tensor GradientWindow::mean(const at::Tensor& parameter) const {
  const at::NoGradGuard no_grad;
  auto result = sum(parameter);
  if (result.defined() && !completed_ && steps_ > 0) {
    result = result.div(steps_ + 1);
  }
  return result;
}

void GradientWindow::end() {
  steps_ = 0;
  completed_ = false;
  sums_.clear();
}

} // namespace accel::detail
