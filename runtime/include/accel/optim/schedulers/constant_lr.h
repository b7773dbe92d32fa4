#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

namespace accel::optim {

/// base_lr · `factor` until epoch `total_iters`, base_lr from there on.
class ACCEL_API ConstantLR final : public LRScheduler {
 public:
  /// `factor` in (0, 1], `total_iters` at least 1. (Python takes a factor of 0
  /// and divides by it at the end.)
  ConstantLR(
      torch::optim::Optimizer& optimizer,
      double factor = 1.0 / 3,
      int64_t total_iters = 5);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "ConstantLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  double factor_;
  int64_t total_iters_;
};

} // namespace accel::optim
