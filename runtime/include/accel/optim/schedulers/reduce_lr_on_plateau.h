#pragma once

#include <accel/optim/schedulers/control.h>
#include <accel/optim/schedulers/scheduler_state.h>

#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

namespace accel::optim {

/// Options of `ReduceLROnPlateau`.
struct ReduceLROnPlateauOptions {
  /// Which metrics are better.
  enum class Mode {
    kMin, ///< smaller ones
    kMax, ///< larger ones
  };
  /// How `threshold` is meant.
  enum class ThresholdMode {
    kRel, ///< relative to the best metric
    kAbs, ///< as a difference
  };
  /// Whether the metric is better when it is smaller or when it is larger.
  TORCH_ARG(Mode, mode) = Mode::kMin;
  /// Factor of a reduction, below 1.
  TORCH_ARG(double, factor) = 0.1;
  /// Epochs without improvement that are let pass.
  TORCH_ARG(int64_t, patience) = 10;
  /// How much better than the best a metric must be to count as an improvement.
  TORCH_ARG(double, threshold) = 1e-4;
  /// Whether `threshold` is relative or absolute.
  TORCH_ARG(ThresholdMode, threshold_mode) = ThresholdMode::kRel;
  /// Epochs after a reduction in which none are counted.
  TORCH_ARG(int64_t, cooldown) = 0;
  /// Lower bound, one for all parameter groups or one per group.
  TORCH_ARG(std::vector<double>, min_lr) = {0.0};
  /// Reductions by less than this are not made.
  TORCH_ARG(double, eps) = 1e-8;
};

/// Multiplies the learning rate by `factor` when a metric has stopped
/// improving. `torch::optim::ReduceLROnPlateauScheduler` in double precision
/// and with a state that can be saved; like it no `LRScheduler`, since its step
/// needs the metric.
///
/// Every process must pass the same metric (gather or reduce it first), or the
/// learning rates drift apart.
class ACCEL_API ReduceLROnPlateau : public accel::detail::SchedulerControl {
 public:
  /// What the constructor takes.
  using Options = ReduceLROnPlateauOptions;

  explicit ReduceLROnPlateau(
      torch::optim::Optimizer& optimizer, Options options = {});

  /// Once per epoch, with the epoch's metric. NaN counts as no improvement.
  void step(double metric);

  /// How many metrics it has got.
  int64_t last_epoch() const {
    return last_epoch_;
  }
  /// Learning rate that each parameter group has now.
  std::vector<double> get_last_lr() const;

  /// See `LRScheduler`.
  SchedulerState state_dict() const;
  /// Goes on where the saved one was; throws as `LRScheduler::load_state_dict`
  /// does.
  void load_state_dict(const SchedulerState& state);
  /// For `torch::save`.
  void save(torch::serialize::OutputArchive& archive) const;
  /// For `torch::load`.
  void load(torch::serialize::InputArchive& archive);

  /// The name of the class, which checkpoints keep.
  std::string scheduler_name() const override {
    return "ReduceLROnPlateau";
  }
  /// The state as JSON.
  std::string save_scheduler() const override;
  /// Sets the state from that JSON.
  void load_scheduler(const std::string& state) override;

 private:
  bool better(double metric) const;
  void reduce();
  std::map<std::string, std::vector<double>> option_values() const;

  torch::optim::Optimizer& optimizer_;
  Options options_;
  /// Empty until the first step.
  std::vector<double> best_;
  int64_t bad_epochs_ = 0;
  int64_t cooldown_left_ = 0;
  int64_t last_epoch_ = 0;
};

ACCEL_API torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive,
    const ReduceLROnPlateau& scheduler);
ACCEL_API torch::serialize::InputArchive& operator>>(
    torch::serialize::InputArchive& archive, ReduceLROnPlateau& scheduler);

} // namespace accel::optim
