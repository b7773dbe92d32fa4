#include <accel/optim/schedulers/cosine_annealing_lr.h>

#include "pi.h"
#include "state_check.h"

#include <cmath>

namespace accel::optim {

CosineAnnealingLR::CosineAnnealingLR(
    torch::optim::Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer), T_max_(T_max), eta_min_(eta_min) {
  TORCH_CHECK(
      T_max >= 1,
      "CosineAnnealingLR: T_max must be at least 1, but is ",
      T_max,
      ".");
  start();
}

double CosineAnnealingLR::get_lr(size_t group, double current) {
  const int64_t epoch = last_epoch();
  if (epoch == 0) {
    return current;
  }
  // Leaving the lowest point, where the ratio below is 0 / 0.
  if ((epoch - 1 - T_max_) % (2 * T_max_) == 0) {
    return current +
           (base_lrs()[group] - eta_min_) * (1 - std::cos(kPi / T_max_)) / 2;
  }
  return (1 + std::cos(kPi * epoch / T_max_)) /
             (1 + std::cos(kPi * (epoch - 1) / T_max_)) * (current - eta_min_) +
         eta_min_;
}

std::map<std::string, std::vector<double>> CosineAnnealingLR::options() const {
  return {{"T_max", {static_cast<double>(T_max_)}}, {"eta_min", {eta_min_}}};
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(
    torch::optim::Optimizer& optimizer,
    int64_t T_0,
    int64_t T_mult,
    double eta_min)
    : LRScheduler(optimizer),
      T_0_(T_0),
      T_mult_(T_mult),
      eta_min_(eta_min),
      T_i_(T_0) {
  TORCH_CHECK(
      T_0 >= 1,
      "CosineAnnealingWarmRestarts: T_0 must be at least 1, but is ",
      T_0,
      ".");
  TORCH_CHECK(
      T_mult >= 1,
      "CosineAnnealingWarmRestarts: T_mult must be at least 1, but is ",
      T_mult,
      ".");
  start();
}

void CosineAnnealingWarmRestarts::on_epoch() {
  if (positioned_) {
    return;
  }
  if (last_epoch() == 0) {
    T_cur_ = 0;
    T_i_ = T_0_;
    return;
  }
  T_cur_ += 1;
  if (T_cur_ >= static_cast<double>(T_i_)) {
    T_cur_ -= static_cast<double>(T_i_);
    T_i_ *= T_mult_;
  }
}

double CosineAnnealingWarmRestarts::get_lr(size_t group, double) {
  return eta_min_ +
         (base_lrs()[group] - eta_min_) *
             (1 + std::cos(kPi * T_cur_ / static_cast<double>(T_i_))) / 2;
}

void CosineAnnealingWarmRestarts::step(double epoch) {
  TORCH_CHECK(
      std::isfinite(epoch) && epoch >= 0,
      "CosineAnnealingWarmRestarts: the epoch must not be negative, but is ",
      epoch,
      ".");
  int64_t length = T_0_;
  double begin = 0;
  if (T_mult_ == 1) {
    begin = std::floor(epoch / static_cast<double>(T_0_)) *
            static_cast<double>(T_0_);
  } else {
    while (epoch >= begin + static_cast<double>(length)) {
      begin += static_cast<double>(length);
      length *= T_mult_;
    }
  }
  T_cur_ = epoch - begin;
  T_i_ = length;
  positioned_ = true;
  set_epoch(static_cast<int64_t>(std::floor(epoch)));
  positioned_ = false;
  ++step_count_;
}

std::map<std::string, std::vector<double>>
CosineAnnealingWarmRestarts::options() const {
  return {
      {"T_0", {static_cast<double>(T_0_)}},
      {"T_mult", {static_cast<double>(T_mult_)}},
      {"eta_min", {eta_min_}}};
}

void CosineAnnealingWarmRestarts::save_values(SchedulerState& state) const {
  state.values["T_cur"] = {T_cur_};
  state.values["T_i"] = {static_cast<double>(T_i_)};
}

void CosineAnnealingWarmRestarts::load_values(const SchedulerState& state) {
  const double T_cur = detail::value_of(state, "T_cur");
  T_i_ = static_cast<int64_t>(detail::value_of(state, "T_i"));
  T_cur_ = T_cur;
}

} // namespace accel::optim
