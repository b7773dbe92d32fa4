#pragma once

#include <accel/export.h>
#include <accel/optim/optimizer.h>

#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

namespace detail {
/// How many steps the wrapped scheduler makes in one call of `step`.
ACCEL_API int64_t scheduler_steps(const OptimizerControl* optimizer);
} // namespace detail

/// A torch scheduler that keeps in step with the optimizer.
///
/// In `match_single_device` one call is one step; inside of an accumulation
/// step (`accumulate`) only where the optimizer steps too, so that a schedule
/// per batch counts optimizer steps and one per epoch counts epochs.
///
/// Otherwise Accelerate's rules hold: nothing while gradients accumulate or
/// when the optimizer's step was skipped; else, as every process works on
/// batches of its own, one step for each process (one with `split_batches`).
/// With `step_scheduler_with_optimizer(false)` one call is always one step.
template <typename Scheduler>
class AcceleratedScheduler : public torch::optim::LRScheduler {
 public:
  static_assert(
      std::is_base_of_v<torch::optim::LRScheduler, Scheduler>,
      "AcceleratedScheduler wraps what derives from "
      "torch::optim::LRScheduler. A ReduceLROnPlateauScheduler needs no "
      "wrapper: give its step the value for the global batch "
      "(accelerator.reduce_for_metrics), which is equal on all processes.");

  template <typename... Args>
  explicit AcceleratedScheduler(
      torch::optim::Optimizer& optimizer,
      Args&&... args)
      : LRScheduler(optimizer),
        control_(dynamic_cast<detail::OptimizerControl*>(&optimizer)),
        inner_(optimizer, std::forward<Args>(args)...) {}

 private:
  // `step` is not virtual; this is what it calls.
  std::vector<double> get_lrs() override {
    for (int64_t i = detail::scheduler_steps(control_); i > 0; --i) {
      inner_.step();
    }
    return get_current_lrs();
  }

  const detail::OptimizerControl* control_;
  Scheduler inner_;
};

} // namespace accel
