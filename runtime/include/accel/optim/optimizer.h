#pragma once

#include <accel/export.h>

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <utility>

namespace accel {

namespace detail {

class GradientWindow;
struct Windows;

/// What all accelerated optimizers have besides their torch type.
class ACCEL_API OptimizerControl {
 public:
  OptimizerControl();
  OptimizerControl(OptimizerControl&& other) noexcept;
  OptimizerControl& operator=(OptimizerControl&& other) noexcept;
  virtual ~OptimizerControl();

  /// True when the last `step` at which gradients were synchronised was left
  /// out because a gradient was infinite or undefined (fp16 only).
  bool step_was_skipped() const {
    return step_was_skipped_;
  }

 protected:
  using Closure = torch::optim::Optimizer::LossClosure;

  /// Decides whether `inner` (the torch optimizer's step) is called.
  at::Tensor run_step(
      torch::optim::Optimizer& optimizer,
      Closure closure,
      const std::function<at::Tensor(Closure)>& inner);

 private:
  friend struct Windows;

  bool step_was_skipped_ = false;
  bool stepped_ = true;
  std::shared_ptr<GradientWindow> window_;
};

} // namespace detail

/// A torch optimizer that takes part in accumulation, averaging over processes
/// and gradient scaling. It *is* an `Opt`: it can be used, held, saved and
/// loaded as one.
///
///     accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
///         model->parameters(), torch::optim::SGDOptions(0.1));
///     accelerator.prepare(model, optimizer);
///
/// `zero_grad` is torch's. What has been accumulated in a window is out of its
/// reach until the window is complete, so it may stand anywhere in the loop.
///
/// In `match_single_device` each optimizer has a window of its own: of
/// `gradient_accumulation_steps` calls of `step` inside of accumulation steps the
/// last one updates, with the mean of the gradients that each would have seen. There
/// it takes part from when it is made, prepared or not: one that an object of the
/// program's keeps needs no name. Checkpoints have those that are prepared.
template <typename Opt>
class AcceleratedOptimizer : public Opt, public detail::OptimizerControl {
 public:
  using Opt::Opt;

  /// Takes the place of a torch optimizer, with its parameters and its state:
  /// `optimizers.push_back(torch::optim::Adam(model->parameters()))`.
  AcceleratedOptimizer(Opt&& optimizer) // NOLINT: implicit
      : Opt(std::move(optimizer)) {}

  /// Does nothing, and returns an undefined tensor, on micro-steps at which
  /// gradients are not synchronised. With a closure, every process must call
  /// it; the loss that the optimizer sees is the one of the global batch. In
  /// `match_single_device` it updates on every call then, and warns where gradients
  /// accumulate: those of a closure do not.
  ///
  /// Throws `c10::Error` where a gradient has not been averaged over the
  /// processes, for a closure together with fp16, and, without
  /// `match_single_device`, for a closure together with gradient accumulation.
  torch::Tensor step(
      torch::optim::Optimizer::LossClosure closure = nullptr) override {
    return this->run_step(
        *this,
        std::move(closure),
        [this](torch::optim::Optimizer::LossClosure inner) {
          return Opt::step(std::move(inner));
        });
  }
};

} // namespace accel
