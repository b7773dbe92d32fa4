#include <accel/grad_scaler.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace accel {

GradScaler::GradScaler(GradScalerOptions options) : options_(options) {}

void GradScaler::make_state(c10::Device device) {
  if (!scale_.defined()) {
    const at::TensorOptions on_device(device);
    scale_ = at::full({1}, options_.init_scale(), on_device.dtype(at::kFloat));
    growth_tracker_ =
        at::full({1}, first_growth_tracker_, on_device.dtype(at::kInt));
  }
}

at::Tensor GradScaler::scale(const at::Tensor& loss) {
  make_state(loss.device());
  return loss * scale_.squeeze(0).to(loss.device());
}

bool GradScaler::unscaled(const torch::optim::Optimizer& optimizer) const {
  return progress_.count(&optimizer) != 0;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  TORCH_CHECK(
      !unscaled(optimizer),
      "accel: GradScaler::unscale_ has already been called for this optimizer "
      "since the last update.");
  const at::NoGradGuard no_grad;
  // LibTorch takes those of one device and dtype at once.
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>>
      gradients;
  c10::Device first(c10::kCPU);
  for (auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      auto grad = parameter.grad();
      if (!grad.defined()) {
        continue;
      }
      if (grad.is_sparse()) {
        grad = grad._values(); // the same memory
      }
      TORCH_CHECK(
          grad.scalar_type() != at::kHalf,
          "accel: gradients in float16 cannot be unscaled. Keep the "
          "parameters in float32; mixed precision casts them itself.");
      first = gradients.empty() ? grad.device() : first;
      gradients[{grad.device().str(), grad.scalar_type()}].push_back(grad);
    }
  }
  TORCH_CHECK(
      !gradients.empty(),
      "accel: the optimizer steps but none of its parameters has a gradient; "
      "with fp16 there must have been an accelerator.backward.");
  make_state(first);
  auto found_inf = at::zeros({1}, scale_.options().device(first));
  const auto inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  for (auto& [kind, alike] : gradients) {
    const auto device = alike.front().device();
    auto found =
        device == first ? found_inf : at::zeros_like(found_inf, device);
    at::_amp_foreach_non_finite_check_and_unscale_(
        alike, found, inverse.to(device));
    if (device != first) {
      found_inf += found.to(first);
    }
  }
  progress_[&optimizer] = {Stage::kUnscaled, found_inf};
}

bool GradScaler::step(
    torch::optim::Optimizer& optimizer,
    const std::function<void()>& step) {
  if (!unscaled(optimizer)) {
    unscale_(optimizer);
  }
  auto& progress = progress_.at(&optimizer);
  TORCH_CHECK(
      progress.stage != Stage::kStepped,
      "accel: GradScaler::step has already been called for this optimizer "
      "since the last update.");
  progress.stage = Stage::kStepped;
  if (progress.found_inf.item<float>() != 0) {
    return false;
  }
  step();
  return true;
}

void GradScaler::update() {
  TORCH_CHECK(
      !progress_.empty(),
      "accel: GradScaler::update was called before any unscale_ or step.");
  const at::NoGradGuard no_grad;
  auto found_inf = at::zeros_like(scale_);
  for (const auto& [optimizer, progress] : progress_) {
    found_inf += progress.found_inf.to(scale_.device());
  }
  at::_amp_update_scale_(
      scale_,
      growth_tracker_,
      found_inf,
      options_.growth_factor(),
      options_.backoff_factor(),
      options_.growth_interval());
  progress_.clear();
}

double GradScaler::get_scale() const {
  return scale_.defined() ? scale_.item<float>() : options_.init_scale();
}

int64_t GradScaler::growth_tracker() const {
  return growth_tracker_.defined() ? growth_tracker_.item<int>()
                                   : first_growth_tracker_;
}

GradScalerState GradScaler::state_dict() const {
  return {
      get_scale(),
      options_.growth_factor(),
      options_.backoff_factor(),
      options_.growth_interval(),
      growth_tracker()};
}

void GradScaler::load_state_dict(const GradScalerState& state) {
  TORCH_CHECK(
      progress_.empty(),
      "accel: the gradient scaler's state was loaded between unscale_ and "
      "update. Load it outside of a training step.");
  TORCH_CHECK(
      std::isfinite(state.scale) && state.scale > 0 &&
          state.growth_factor > 1 && state.backoff_factor > 0 &&
          state.backoff_factor < 1 && state.growth_interval > 0 &&
          state.growth_tracker >= 0 &&
          state.growth_tracker < state.growth_interval,
      "accel: no gradient scaler has the state scale ",
      state.scale,
      ", growth_factor ",
      state.growth_factor,
      ", backoff_factor ",
      state.backoff_factor,
      ", growth_interval ",
      state.growth_interval,
      ", growth_tracker ",
      state.growth_tracker,
      ".");
  options_.init_scale(state.scale)
      .growth_factor(state.growth_factor)
      .backoff_factor(state.backoff_factor)
      .growth_interval(state.growth_interval);
  first_growth_tracker_ = state.growth_tracker;
  scale_.reset();
  growth_tracker_.reset();
}

} // namespace accel
