#pragma once

#include <accel/optim/schedulers/control.h>
#include <accel/optim/schedulers/scheduler_state.h>

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/serialize/archive.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel::optim {

/// Base of the schedulers of this folder: a `torch::optim::LRScheduler` that
/// counts like Python's and can be saved.
///
/// - The learning rate of epoch 0 is set when the scheduler is constructed;
///   after n calls of `step()` it is that of epoch n. (LibTorch's own StepLR
///   does nothing in its first `step()` and so is one step behind Python's.)
///   "Epoch" is Python's word: it is whatever the program calls `step()` for.
/// - `base_lrs` are the optimizer's learning rates at construction. Where they
///   are what another living scheduler of this folder has set, they are that
///   one's `base_lrs`, as Python's `initial_lr` has it: an earlier warm-up does
///   not lower the later schedule.
/// - Schedulers that follow from the previous learning rate (all but LambdaLR,
///   OneCycleLR and CosineAnnealingWarmRestarts) can be chained on one
///   optimizer; their factors multiply.
///
/// The optimizer must outlive the scheduler and keep its parameter groups. Not
/// thread-safe. Every process makes the same calls; nothing is communicated.
class ACCEL_API LRScheduler : public torch::optim::LRScheduler,
                              public accel::detail::SchedulerControl {
 public:
  explicit LRScheduler(torch::optim::Optimizer& optimizer);
  ~LRScheduler() override;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Number of steps since construction or `restart()`.
  int64_t last_epoch() const {
    return last_epoch_;
  }
  /// Python's `_step_count`: 1 after construction, one more with each step.
  int64_t step_count() const {
    return step_count_;
  }
  /// Counts a step that is not taken: micro-steps of gradient accumulation
  /// (`GradientAccumulationPlugin::adjust_scheduler`).
  void count_skipped_step() {
    ++step_count_;
  }
  /// The number of steps after which the schedule ends, where it ends and
  /// further steps are an error (OneCycleLR).
  virtual std::optional<int64_t> total_steps() const {
    return std::nullopt;
  }

  /// Learning rate of each parameter group at construction.
  const std::vector<double>& base_lrs() const {
    return base_lrs_;
  }
  /// Learning rate that each parameter group has now.
  std::vector<double> get_last_lr() const {
    return get_current_lrs();
  }
  /// The optimizer whose learning rates it sets.
  const torch::optim::Optimizer& optimizer() const {
    return *optimizer_;
  }

  /// Back to epoch 0 and its learning rates, from `base_lrs`.
  virtual void restart();

  /// Everything that a resumed run needs, the learning rates that the
  /// optimizer has now included.
  SchedulerState state_dict() const;
  /// Goes on where the saved scheduler was; sets the optimizer's learning
  /// rates, so it makes no difference whether the optimizer is loaded before
  /// or after. Throws, and changes nothing, when the state is another class's,
  /// was saved with other options or for another number of parameter groups.
  void load_state_dict(const SchedulerState& state);

  /// The same for `torch::save` and `torch::load`.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Reads what `save` has written; throws as `load_state_dict` does.
  void load(torch::serialize::InputArchive& archive);

  /// The name of the class, which checkpoints keep.
  std::string scheduler_name() const override {
    return name();
  }
  /// The state as JSON.
  std::string save_scheduler() const override;
  /// Sets the state from that JSON; throws as `load_state_dict` does.
  void load_scheduler(const std::string& state) override;

 protected:
  /// Sets the learning rates of epoch 0. To be called at the end of the
  /// constructor of the concrete class.
  void start();

  /// The learning rate of `last_epoch()` for one parameter group. `current` is
  /// the group's learning rate up to now; at epoch 0 the one before scheduling.
  virtual double get_lr(size_t group, double current) = 0;
  /// Called once per step after `last_epoch()` was advanced, before `get_lr`.
  virtual void on_epoch() {}

  /// The class's name in saved states.
  virtual std::string name() const = 0;
  /// What the scheduler was constructed with, and what it counts beside
  /// `last_epoch`.
  virtual std::map<std::string, std::vector<double>> options() const {
    return {};
  }
  virtual void save_values(SchedulerState& state) const {}
  /// Must check before it changes anything.
  virtual void load_values(const SchedulerState& state) {}

  /// Moves to `epoch` and sets its learning rates.
  void set_epoch(int64_t epoch);
  void set_lrs(const std::vector<double>& lrs);
  void set_base_lrs(std::vector<double> lrs);
  torch::optim::Optimizer& mutable_optimizer() {
    return *optimizer_;
  }

 private:
  std::vector<double> get_lrs() final;

  torch::optim::Optimizer* optimizer_;
  std::vector<double> base_lrs_;
  /// What this scheduler gave the optimizer last.
  std::vector<double> last_set_;
  int64_t last_epoch_ = 0;
};

ACCEL_API torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive, const LRScheduler& scheduler);
ACCEL_API torch::serialize::InputArchive& operator>>(
    torch::serialize::InputArchive& archive, LRScheduler& scheduler);

} // namespace accel::optim
