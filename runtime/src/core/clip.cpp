#include <accel/accelerator.h>
#include <accel/grad_scaler.h>

#include "core/optimizers.h"
#include "core/runtime.h"
#include "gradients/window.h"

#include <torch/nn/utils/clip_grad.h>

namespace accel {
namespace {

/// Tensors whose gradients are copies of what has been accumulated for
/// `parameters`.
std::vector<torch::Tensor> stand_ins(
    detail::Runtime& runtime,
    const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> result;
  for (const auto& parameter : parameters) {
    const auto gradient = runtime.state().match_single_device()
        ? detail::mean_of_window(parameter)
        : runtime.reducer().accumulated(parameter);
    if (gradient.defined()) {
      result.push_back(torch::empty({0}, gradient.options()));
      result.back().mutable_grad() = gradient.clone();
    }
  }
  return result;
}

/// Makes the gradients those of all processes, and of the whole window; false
/// on a micro-step on which their optimizer does not step. Throws where some
/// are not. In `match_single_device` a tensor that no optimizer has, and that the
/// program updates itself, need not be prepared: its gradient is a distributed
/// tensor, or the same on all processes. `who` begins such an error.
bool gradients_are_whole(
    detail::Runtime& runtime,
    const char* who,
    const std::vector<torch::Tensor>& parameters) {
  runtime.note_learning();
  const auto& gradients = GradientState::get();
  if (runtime.state().match_single_device() && gradients.num_steps > 1) {
    if (!detail::complete_windows(parameters)) {
      return false;
    }
  } else if (!gradients.sync_gradients) {
    return false;
  }
  runtime.average_accumulated();
  if (!runtime.state().match_single_device()) {
    runtime.reducer().check_averaged(parameters, who);
  }
  return true;
}

} // namespace

GradScaler* Accelerator::scaler() const {
  return runtime_->scaler();
}

void Accelerator::unscale_gradients() {
  if (scaler() == nullptr) {
    return;
  }
  runtime_->note_learning();
  for (auto* control : detail::learning_optimizers()) {
    if (!detail::Windows::steps_now(*control)) {
      continue;
    }
    auto& optimizer = dynamic_cast<torch::optim::Optimizer&>(*control);
    detail::Windows::complete(*control);
    const auto parameters = detail::parameters_of(optimizer);
    const bool has_gradients = std::any_of(
        parameters.begin(), parameters.end(), [](const auto& parameter) {
          return parameter.grad().defined();
        });
    if (has_gradients && !scaler()->unscaled(optimizer)) {
      scaler()->unscale_(optimizer);
    }
  }
}

double Accelerator::clip_grad_norm_(
    at::TensorList parameters,
    double max_norm,
    double norm_type,
    bool error_if_nonfinite) {
  const auto all = parameters.vec();
  if (!gradients_are_whole(*runtime_, "clip_grad_norm_ was given", all)) {
    return torch::nn::utils::clip_grad_norm_(
        stand_ins(*runtime_, all), max_norm, norm_type);
  }
  unscale_gradients();
  return torch::nn::utils::clip_grad_norm_(
      all, max_norm, norm_type, error_if_nonfinite);
}

void Accelerator::clip_grad_value_(
    at::TensorList parameters,
    double clip_value) {
  const auto all = parameters.vec();
  if (gradients_are_whole(*runtime_, "clip_grad_value_ was given", all)) {
    unscale_gradients();
    torch::nn::utils::clip_grad_value_(all, clip_value);
  }
}

AutocastGuard Accelerator::autocast() const {
  return autocast(state().options().autocast);
}

AutocastGuard Accelerator::autocast(const AutocastOptions& options) const {
  if (mixed_precision() == MixedPrecision::kNo) {
    return {};
  }
  return AutocastGuard(
      device().type(),
      mixed_precision() == MixedPrecision::kFP16 ? torch::kHalf
                                                 : torch::kBFloat16,
      options.enabled(),
      options.cache_enabled());
}

} // namespace accel
