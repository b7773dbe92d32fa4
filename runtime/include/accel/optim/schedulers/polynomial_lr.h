#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

namespace accel::optim {

/// base_lr · (1 − epoch / total_iters)^power until epoch `total_iters`, 0 from
/// there on.
class ACCEL_API PolynomialLR final : public LRScheduler {
 public:
  /// `total_iters` at least 1, `power` above 0.
  PolynomialLR(
      torch::optim::Optimizer& optimizer,
      int64_t total_iters = 5,
      double power = 1.0);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "PolynomialLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  int64_t total_iters_;
  double power_;
};

} // namespace accel::optim
