#include <accel/optim/schedulers/warmup.h>

#include "pi.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace accel::optim {
namespace {

double ratio(int64_t numerator, int64_t denominator) {
  return static_cast<double>(numerator) /
         static_cast<double>(std::max<int64_t>(1, denominator));
}

} // namespace

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, LRLambda lr_lambda)
    : LambdaLR(
          optimizer,
          std::vector<LRLambda>(
              optimizer.param_groups().size(), std::move(lr_lambda))) {}

LambdaLR::LambdaLR(
    torch::optim::Optimizer& optimizer, std::vector<LRLambda> lr_lambdas)
    : LRScheduler(optimizer), lambdas_(std::move(lr_lambdas)) {
  TORCH_CHECK(
      lambdas_.size() == base_lrs().size(),
      "LambdaLR: expected one function per parameter group, ",
      base_lrs().size(),
      ", but got ",
      lambdas_.size(),
      ".");
  for (const auto& lambda : lambdas_) {
    TORCH_CHECK(lambda, "LambdaLR: a function is empty.");
  }
  start();
}

double LambdaLR::get_lr(size_t group, double) {
  return base_lrs()[group] * lambdas_[group](last_epoch());
}

LRLambda constant_with_warmup(int64_t num_warmup_steps) {
  return [=](int64_t step) {
    return step < num_warmup_steps ? ratio(step, num_warmup_steps) : 1.0;
  };
}

LRLambda linear_with_warmup(
    int64_t num_warmup_steps, int64_t num_training_steps) {
  return [=](int64_t step) {
    if (step < num_warmup_steps) {
      return ratio(step, num_warmup_steps);
    }
    return std::max(
        0.0,
        ratio(
            num_training_steps - step, num_training_steps - num_warmup_steps));
  };
}

LRLambda cosine_with_warmup(
    int64_t num_warmup_steps, int64_t num_training_steps, double num_cycles) {
  return [=](int64_t step) {
    if (step < num_warmup_steps) {
      return ratio(step, num_warmup_steps);
    }
    const double progress =
        ratio(step - num_warmup_steps, num_training_steps - num_warmup_steps);
    return std::max(
        0.0, 0.5 * (1.0 + std::cos(kPi * num_cycles * 2.0 * progress)));
  };
}

LambdaLR get_constant_schedule_with_warmup(
    torch::optim::Optimizer& optimizer, int64_t num_warmup_steps) {
  return LambdaLR(optimizer, constant_with_warmup(num_warmup_steps));
}

LambdaLR get_linear_schedule_with_warmup(
    torch::optim::Optimizer& optimizer,
    int64_t num_warmup_steps,
    int64_t num_training_steps) {
  return LambdaLR(
      optimizer, linear_with_warmup(num_warmup_steps, num_training_steps));
}

LambdaLR get_cosine_schedule_with_warmup(
    torch::optim::Optimizer& optimizer,
    int64_t num_warmup_steps,
    int64_t num_training_steps,
    double num_cycles) {
  return LambdaLR(
      optimizer,
      cosine_with_warmup(num_warmup_steps, num_training_steps, num_cycles));
}

} // namespace accel::optim
