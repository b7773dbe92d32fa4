#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

namespace accel::optim {

/// Half a cosine from base_lr at epoch 0 down to `eta_min` at epoch `T_max`,
/// and up again over the next `T_max` epochs:
/// eta_min + (base_lr − eta_min) · (1 + cos(π · epoch / T_max)) / 2.
class ACCEL_API CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(
      torch::optim::Optimizer& optimizer, int64_t T_max, double eta_min = 0.0);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "CosineAnnealingLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  int64_t T_max_;
  double eta_min_;
};

/// Half a cosine from base_lr down to `eta_min` over T_0 epochs, then again
/// over T_0 · T_mult, T_0 · T_mult² … epochs (SGDR).
class ACCEL_API CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(
      torch::optim::Optimizer& optimizer,
      int64_t T_0,
      int64_t T_mult = 1,
      double eta_min = 0.0);

  using LRScheduler::step;
  /// Sets the learning rate of a fractional epoch, for programs that call
  /// `step(epoch + batch / batches)` after every batch. Not reachable through
  /// an AcceleratedScheduler, which counts steps by itself.
  void step(double epoch);

 protected:
  double get_lr(size_t group, double current) override;
  void on_epoch() override;
  std::string name() const override {
    return "CosineAnnealingWarmRestarts";
  }
  std::map<std::string, std::vector<double>> options() const override;
  void save_values(SchedulerState& state) const override;
  void load_values(const SchedulerState& state) override;

 private:
  int64_t T_0_;
  int64_t T_mult_;
  double eta_min_;
  /// Position in the current period, and its length.
  double T_cur_ = 0;
  int64_t T_i_;
  /// Set while `step(double)` runs: the position is already known.
  bool positioned_ = false;
};

} // namespace accel::optim
