#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

#include <torch/arg.h>

namespace accel::optim {

/// Options of `OneCycleLR`. `max_lr` and the momentums take one value for all
/// parameter groups or one per group.
struct OneCycleLROptions {
  /// How the learning rate moves.
  enum class Anneal {
    kCos, ///< along a cosine
    kLinear, ///< along a straight line
  };

  /* implicit */ OneCycleLROptions(double max_lr) : max_lr_({max_lr}) {}
  explicit OneCycleLROptions(std::vector<double> max_lr)
      : max_lr_(std::move(max_lr)) {}

  /// Highest learning rate.
  TORCH_ARG(std::vector<double>, max_lr);
  /// Number of steps of the cycle; 0: the product of `epochs` and
  /// `steps_per_epoch`.
  TORCH_ARG(int64_t, total_steps) = 0;
  /// Epochs of the training, where `total_steps` is 0.
  TORCH_ARG(int64_t, epochs) = 0;
  /// Steps of an epoch, where `total_steps` is 0.
  TORCH_ARG(int64_t, steps_per_epoch) = 0;
  /// Part of the cycle in which the learning rate rises, in [0, 1].
  TORCH_ARG(double, pct_start) = 0.3;
  /// Whether it moves along a cosine or a straight line.
  TORCH_ARG(Anneal, anneal_strategy) = Anneal::kCos;
  /// Whether the momentum (SGD, RMSprop) or beta1 (Adam, AdamW) moves against
  /// the learning rate, between `max_momentum` and `base_momentum`.
  TORCH_ARG(bool, cycle_momentum) = true;
  /// The lowest momentum, where the learning rate is highest.
  TORCH_ARG(std::vector<double>, base_momentum) = {0.85};
  /// The highest momentum, at the start and at the end.
  TORCH_ARG(std::vector<double>, max_momentum) = {0.95};
  /// The first learning rate is max_lr / div_factor.
  TORCH_ARG(double, div_factor) = 25.0;
  /// The last learning rate is the first one / final_div_factor.
  TORCH_ARG(double, final_div_factor) = 1e4;
  /// Whether the fall first mirrors the rise and then goes to the last
  /// learning rate, instead of going there at once.
  TORCH_ARG(bool, three_phase) = false;
};

/// The 1cycle policy: the learning rate rises to `max_lr` and falls far below
/// where it began; one `step()` per batch. It replaces the optimizer's learning
/// rate and, with `cycle_momentum`, its momentum.
///
/// Stepping more than `total_steps` times is an error, as in Python.
/// (AcceleratedScheduler stops there.)
class ACCEL_API OneCycleLR final : public LRScheduler {
 public:
  OneCycleLR(torch::optim::Optimizer& optimizer, OneCycleLROptions options);

  std::optional<int64_t> total_steps() const override {
    return total_steps_;
  }

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "OneCycleLR";
  }
  std::map<std::string, std::vector<double>> options() const override;
  void save_values(SchedulerState& state) const override;
  void load_values(const SchedulerState& state) override;

 private:
  enum class Level { kInitial, kMax, kMin };
  /// One leg of the cycle: from one learning rate and momentum to the next.
  struct Phase {
    double end_step;
    Level start_lr, end_lr;
    bool high_momentum_at_start, high_momentum_at_end;
  };

  double level(Level level, size_t group) const;
  double momentum(bool high, size_t group) const;
  double anneal(double start, double end, double fraction) const;

  OneCycleLROptions options_;
  int64_t total_steps_;
  std::vector<Phase> phases_;
};

} // namespace accel::optim
