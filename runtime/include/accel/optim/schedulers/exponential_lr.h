#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

namespace accel::optim {

/// Multiplies by `gamma` every epoch.
class ACCEL_API ExponentialLR final : public LRScheduler {
 public:
  ExponentialLR(torch::optim::Optimizer& optimizer, double gamma);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "ExponentialLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  double gamma_;
};

} // namespace accel::optim
