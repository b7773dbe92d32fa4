#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

#include <torch/arg.h>

namespace accel::optim {

/// Options of `LinearLR`.
struct LinearLROptions {
  /// Factor at epoch 0, in (0, 1].
  TORCH_ARG(double, start_factor) = 1.0 / 3;
  /// Factor from epoch `total_iters` on, in [0, 1].
  TORCH_ARG(double, end_factor) = 1.0;
  /// Epochs from the one to the other, at least 1.
  TORCH_ARG(int64_t, total_iters) = 5;
};

/// base_lr times a factor that moves linearly from `start_factor` to
/// `end_factor`.
class ACCEL_API LinearLR final : public LRScheduler {
 public:
  explicit LinearLR(
      torch::optim::Optimizer& optimizer, LinearLROptions options = {});

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "LinearLR";
  }
  std::map<std::string, std::vector<double>> options() const override;

 private:
  LinearLROptions options_;
};

} // namespace accel::optim
