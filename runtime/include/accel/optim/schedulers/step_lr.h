#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

namespace accel::optim {

/// Multiplies by `gamma` every `step_size` epochs, counted as in Python:
/// `torch::optim::StepLR` does the same one step later and cannot be saved.
class ACCEL_API StepLR final : public LRScheduler {
 public:
  StepLR(
      torch::optim::Optimizer& optimizer,
      int64_t step_size,
      double gamma = 0.1);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "StepLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  int64_t step_size_;
  double gamma_;
};

/// Multiplies by `gamma` when the epoch is one of `milestones`; by its square
/// when a milestone is named twice.
class ACCEL_API MultiStepLR final : public LRScheduler {
 public:
  MultiStepLR(
      torch::optim::Optimizer& optimizer,
      std::vector<int64_t> milestones,
      double gamma = 0.1);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "MultiStepLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  /// Sorted.
  std::vector<int64_t> milestones_;
  double gamma_;
};

} // namespace accel::optim
