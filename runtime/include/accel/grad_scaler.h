#pragma once

#include <accel/export.h>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>

#include <functional>
#include <unordered_map>

namespace accel {

/// Options of `GradScaler`. Counterpart of Accelerate's `GradScalerKwargs`.
class GradScalerOptions {
 public:
  /// The scale at the start.
  TORCH_ARG(double, init_scale) = 65536.0;
  /// The scale is multiplied by this after `growth_interval` steps without an
  /// infinite or undefined gradient.
  TORCH_ARG(double, growth_factor) = 2.0;
  /// The scale is multiplied by this after a step with an infinite or undefined
  /// gradient.
  TORCH_ARG(double, backoff_factor) = 0.5;
  /// Steps without an infinite or undefined gradient before the scale grows.
  TORCH_ARG(int64_t, growth_interval) = 2000;

 public:
  bool operator==(const GradScalerOptions& other) const {
    return init_scale_ == other.init_scale_ &&
        growth_factor_ == other.growth_factor_ &&
        backoff_factor_ == other.backoff_factor_ &&
        growth_interval_ == other.growth_interval_;
  }
  bool operator!=(const GradScalerOptions& other) const {
    return !(*this == other);
  }
};

/// What `torch.amp.GradScaler.state_dict` holds.
struct GradScalerState {
  double scale = 0; ///< what losses are multiplied by
  double growth_factor = 0; ///< see `GradScalerOptions`
  double backoff_factor = 0; ///< see `GradScalerOptions`
  int64_t growth_interval = 0; ///< see `GradScalerOptions`
  int64_t growth_tracker = 0; ///< good steps since the scale has changed
};

/// Keeps float16 gradients from vanishing: losses are multiplied by a scale,
/// gradients divided by it before the step, and steps with infinite or
/// undefined gradients left out. Counterpart of `torch.amp.GradScaler`, with
/// the same numbers.
///
/// For each iteration: `scale` the losses, backward, then for each optimizer
/// `unscale_` (optional) and `step`, then `update` once.
class ACCEL_API GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  /// The loss times the scale.
  at::Tensor scale(const at::Tensor& loss);

  /// Divides the gradients of the optimizer's parameters by the scale. Throws
  /// where that has been done since the last `update`, and for gradients in
  /// float16.
  void unscale_(torch::optim::Optimizer& optimizer);
  /// Whether `unscale_` was called for it since the last `update`.
  bool unscaled(const torch::optim::Optimizer& optimizer) const;

  /// Calls `step` unless a gradient is infinite or undefined; unscales before
  /// where that has not been done. Returns whether it was called.
  bool step(
      torch::optim::Optimizer& optimizer,
      const std::function<void()>& step);

  /// Adapts the scale to what was found since the last `update`.
  void update();

  /// What losses are multiplied by now.
  double get_scale() const;
  /// Good steps since the scale has changed.
  int64_t growth_tracker() const;

  /// Everything that is kept from one `update` to the next.
  GradScalerState state_dict() const;
  /// Throws `c10::Error` for values that no scaler has, and between `unscale_`
  /// and `update`.
  void load_state_dict(const GradScalerState& state);

 private:
  enum class Stage { kUnscaled, kStepped };
  struct Progress {
    Stage stage;
    at::Tensor found_inf;
  };

  void make_state(c10::Device device);

  GradScalerOptions options_;
  /// Until the tensors are made on the gradients' device.
  int64_t first_growth_tracker_ = 0;
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  std::unordered_map<const torch::optim::Optimizer*, Progress> progress_;
};

} // namespace accel
