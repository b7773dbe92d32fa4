#pragma once

#include <accel/optim/schedulers/lr_scheduler.h>

#include <functional>

namespace accel::optim {

/// A factor as a function of the epoch.
using LRLambda = std::function<double(int64_t epoch)>;

/// lr = base_lr · lambda(epoch). The function itself is not part of the saved
/// state.
class ACCEL_API LambdaLR final : public LRScheduler {
 public:
  /// One function for all parameter groups.
  LambdaLR(torch::optim::Optimizer& optimizer, LRLambda lr_lambda);
  /// One function per parameter group.
  LambdaLR(
      torch::optim::Optimizer& optimizer, std::vector<LRLambda> lr_lambdas);

 protected:
  double get_lr(size_t group, double current) override;
  std::string name() const override {
    return "LambdaLR";
  }

 private:
  std::vector<LRLambda> lambdas_;
};

} // namespace accel::optim
