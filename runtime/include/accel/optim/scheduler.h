#pragma once

#include <accel/checkpoint/custom_object.h>
#include <accel/export.h>
#include <accel/optim/optimizer.h>
#include <accel/optim/schedulers/control.h>
#include <accel/optim/schedulers/lr_scheduler.h>

#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>

#include <c10/util/Type.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

namespace detail {
/// How many steps the wrapped scheduler makes in one call of `step`.
ACCEL_API int64_t scheduler_steps(const OptimizerControl* optimizer);
/// Whether a call in which it makes none is counted (`adjust_scheduler`).
ACCEL_API bool scheduler_counts_micro_step();

/// LibTorch's schedulers count steps and have no other state of their own.
ACCEL_API std::string step_count_of(const torch::optim::LRScheduler& scheduler);
ACCEL_API void set_step_count(
    torch::optim::LRScheduler& scheduler,
    const std::string& state);
[[noreturn]] ACCEL_API void throw_scheduler_without_state(
    const std::string& name);

/// What an `AcceleratedScheduler` is to code that takes schedulers: any scheduler;
/// a StepLR where it wraps one, which has nothing to call but `step`.
template <typename Scheduler>
class SchedulerFace : public torch::optim::LRScheduler {
 protected:
  template <typename... Args>
  explicit SchedulerFace(
      torch::optim::Optimizer& optimizer,
      const Args&... /*args*/)
      : LRScheduler(optimizer) {}
};
template <>
class SchedulerFace<torch::optim::StepLR> : public torch::optim::StepLR {
 protected:
  template <typename... Args>
  explicit SchedulerFace(torch::optim::Optimizer& optimizer, const Args&... args)
      : StepLR(optimizer, args...) {}
};
} // namespace detail

/// A torch scheduler that keeps in step with the optimizer.
///
/// In `match_single_device` one call is one step; inside of an accumulation
/// step (`accumulate`) only where its optimizer's last `step` was one, too, so that a schedule
/// per batch counts optimizer steps and one per epoch counts epochs.
///
/// Otherwise Accelerate's rules hold: nothing while gradients accumulate or
/// when the optimizer's step was skipped; else, as every process works on
/// batches of its own, one step for each process (one with `split_batches`).
/// With `step_scheduler_with_optimizer(false)` one call is always one step.
/// A scheduler that ends (`accel::optim::OneCycleLR`) stays at its last step.
///
/// Functions that take a `torch::optim::LRScheduler&` can be given it, and those that
/// take a `torch::optim::StepLR&` where it wraps one.
template <typename Scheduler>
class AcceleratedScheduler : public detail::SchedulerFace<Scheduler>,
                             public detail::SchedulerControl {
 public:
  static_assert(
      std::is_base_of_v<torch::optim::LRScheduler, Scheduler>,
      "AcceleratedScheduler wraps what derives from "
      "torch::optim::LRScheduler. A ReduceLROnPlateauScheduler needs no "
      "wrapper: give its step the value for the global batch "
      "(accelerator.reduce), which is equal on all processes.");

  template <typename... Args>
  explicit AcceleratedScheduler(
      torch::optim::Optimizer& optimizer,
      Args&&... args)
      : detail::SchedulerFace<Scheduler>(optimizer, args...),
        control_(dynamic_cast<detail::OptimizerControl*>(&optimizer)),
        inner_(optimizer, std::forward<Args>(args)...) {
    if constexpr (std::is_base_of_v<detail::SchedulerControl, Scheduler>) {
      inner_.leave_to_another();
    }
  }

  /// The wrapped scheduler, for what only it has: `last_epoch()`,
  /// `state_dict()`. Do not step it.
  Scheduler& inner() {
    return inner_;
  }
  /// The same for a constant one.
  const Scheduler& inner() const {
    return inner_;
  }

  /// The name of the wrapped class, which checkpoints keep.
  std::string scheduler_name() const override {
    return c10::demangle_type<Scheduler>();
  }

  /// The state of the wrapped scheduler, for checkpoints. Throws `c10::Error`
  /// for a class whose state is not known.
  std::string save_scheduler() const override {
    if constexpr (checkpoint::detail::has_archives<Scheduler>::value) {
      return checkpoint::detail::archive_bytes(
          [this](auto& archive) { inner_.save(archive); });
    } else if constexpr (std::is_same_v<Scheduler, torch::optim::StepLR>) {
      return detail::step_count_of(inner_);
    } else {
      detail::throw_scheduler_without_state(scheduler_name());
    }
  }

  /// Sets that state. Throws as `save_scheduler` does.
  void load_scheduler(const std::string& state) override {
    if constexpr (checkpoint::detail::has_archives<Scheduler>::value) {
      checkpoint::detail::read_archive(
          state, [this](auto& archive) { inner_.load(archive); });
    } else if constexpr (std::is_same_v<Scheduler, torch::optim::StepLR>) {
      detail::set_step_count(inner_, state);
    } else {
      detail::throw_scheduler_without_state(scheduler_name());
    }
  }

 private:
  // `step` is not virtual; this is what it calls.
  std::vector<double> get_lrs() override {
    const int64_t steps = detail::scheduler_steps(control_);
    if constexpr (std::is_base_of_v<optim::LRScheduler, Scheduler>) {
      if (steps == 0 && detail::scheduler_counts_micro_step()) {
        inner_.count_skipped_step();
      }
      const auto total = inner_.total_steps();
      for (int64_t i = 0; i < steps; ++i) {
        if (!total || inner_.step_count() <= *total) {
          inner_.step();
        }
      }
    } else {
      for (int64_t i = 0; i < steps; ++i) {
        inner_.step();
      }
    }
    return this->get_current_lrs();
  }

  const detail::OptimizerControl* control_;
  Scheduler inner_;
};

} // namespace accel
