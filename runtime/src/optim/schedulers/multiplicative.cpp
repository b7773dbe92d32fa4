/// The schedulers that multiply the previous learning rate.

#include <accel/optim/schedulers/constant_lr.h>
#include <accel/optim/schedulers/exponential_lr.h>
#include <accel/optim/schedulers/linear_lr.h>
#include <accel/optim/schedulers/polynomial_lr.h>
#include <accel/optim/schedulers/step_lr.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace accel::optim {
namespace {

using Values = std::map<std::string, std::vector<double>>;

void check_iters(const char* scheduler, int64_t total_iters) {
  TORCH_CHECK(
      total_iters >= 1,
      scheduler,
      ": total_iters must be at least 1, but is ",
      total_iters,
      ".");
}

} // namespace

StepLR::StepLR(
    torch::optim::Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  TORCH_CHECK(
      step_size >= 1,
      "StepLR: step_size must be at least 1, but is ",
      step_size,
      ".");
  start();
}

double StepLR::get_lr(size_t, double current) {
  const bool multiply = last_epoch() > 0 && last_epoch() % step_size_ == 0;
  return multiply ? current * gamma_ : current;
}

Values StepLR::options() const {
  return {
      {"step_size", {static_cast<double>(step_size_)}}, {"gamma", {gamma_}}};
}

MultiStepLR::MultiStepLR(
    torch::optim::Optimizer& optimizer,
    std::vector<int64_t> milestones,
    double gamma)
    : LRScheduler(optimizer),
      milestones_(std::move(milestones)),
      gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
  start();
}

double MultiStepLR::get_lr(size_t, double current) {
  const auto [first, last] =
      std::equal_range(milestones_.begin(), milestones_.end(), last_epoch());
  return first == last
             ? current
             : current * std::pow(gamma_, static_cast<double>(last - first));
}

Values MultiStepLR::options() const {
  return {
      {"milestones",
       std::vector<double>(milestones_.begin(), milestones_.end())},
      {"gamma", {gamma_}}};
}

ExponentialLR::ExponentialLR(torch::optim::Optimizer& optimizer, double gamma)
    : LRScheduler(optimizer), gamma_(gamma) {
  start();
}

double ExponentialLR::get_lr(size_t, double current) {
  return last_epoch() == 0 ? current : current * gamma_;
}

Values ExponentialLR::options() const {
  return {{"gamma", {gamma_}}};
}

ConstantLR::ConstantLR(
    torch::optim::Optimizer& optimizer, double factor, int64_t total_iters)
    : LRScheduler(optimizer), factor_(factor), total_iters_(total_iters) {
  TORCH_CHECK(
      factor > 0 && factor <= 1,
      "ConstantLR: factor must be in (0, 1], but is ",
      factor,
      ".");
  check_iters("ConstantLR", total_iters);
  start();
}

double ConstantLR::get_lr(size_t, double current) {
  if (last_epoch() == 0) {
    return current * factor_;
  }
  return last_epoch() == total_iters_ ? current * (1.0 / factor_) : current;
}

Values ConstantLR::options() const {
  return {
      {"factor", {factor_}},
      {"total_iters", {static_cast<double>(total_iters_)}}};
}

LinearLR::LinearLR(torch::optim::Optimizer& optimizer, LinearLROptions options)
    : LRScheduler(optimizer), options_(options) {
  TORCH_CHECK(
      options.start_factor() > 0 && options.start_factor() <= 1,
      "LinearLR: start_factor must be in (0, 1], but is ",
      options.start_factor(),
      ".");
  TORCH_CHECK(
      options.end_factor() >= 0 && options.end_factor() <= 1,
      "LinearLR: end_factor must be in [0, 1], but is ",
      options.end_factor(),
      ".");
  check_iters("LinearLR", options.total_iters());
  start();
}

double LinearLR::get_lr(size_t, double current) {
  const double start = options_.start_factor();
  const double change = options_.end_factor() - start;
  const int64_t total = options_.total_iters();
  if (last_epoch() == 0) {
    return current * start;
  }
  if (last_epoch() > total) {
    return current;
  }
  return current *
         (1.0 + change / (total * start + (last_epoch() - 1) * change));
}

Values LinearLR::options() const {
  return {
      {"start_factor", {options_.start_factor()}},
      {"end_factor", {options_.end_factor()}},
      {"total_iters", {static_cast<double>(options_.total_iters())}}};
}

PolynomialLR::PolynomialLR(
    torch::optim::Optimizer& optimizer, int64_t total_iters, double power)
    : LRScheduler(optimizer), total_iters_(total_iters), power_(power) {
  TORCH_CHECK(
      power > 0, "PolynomialLR: power must be above 0, but is ", power, ".");
  check_iters("PolynomialLR", total_iters);
  start();
}

double PolynomialLR::get_lr(size_t, double current) {
  if (last_epoch() == 0 || last_epoch() > total_iters_) {
    return current;
  }
  const double total = static_cast<double>(total_iters_);
  const double before = 1.0 - static_cast<double>(last_epoch() - 1) / total;
  const double now = 1.0 - static_cast<double>(last_epoch()) / total;
  return current * std::pow(now / before, power_);
}

Values PolynomialLR::options() const {
  return {
      {"total_iters", {static_cast<double>(total_iters_)}},
      {"power", {power_}}};
}

} // namespace accel::optim
