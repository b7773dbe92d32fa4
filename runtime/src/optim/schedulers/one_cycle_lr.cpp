#include <accel/optim/schedulers/one_cycle_lr.h>

#include "momentum.h"
#include "pi.h"
#include "state_check.h"

#include <cmath>
#include <utility>

namespace accel::optim {
namespace {

/// One value per parameter group.
std::vector<double> per_group(
    std::vector<double> values, size_t groups, const char* name) {
  if (values.size() == 1) {
    values.resize(groups, values[0]);
  }
  TORCH_CHECK(
      values.size() == groups,
      "OneCycleLR: ",
      name,
      " has ",
      values.size(),
      " values for ",
      groups,
      " parameter groups; give one, or one per group.");
  return values;
}

int64_t number_of_steps(const OneCycleLROptions& options) {
  if (options.total_steps() != 0) {
    TORCH_CHECK(
        options.total_steps() > 0,
        "OneCycleLR: total_steps must be positive, but is ",
        options.total_steps(),
        ".");
    return options.total_steps();
  }
  TORCH_CHECK(
      options.epochs() > 0 && options.steps_per_epoch() > 0,
      "OneCycleLR: give total_steps, or epochs and steps_per_epoch, all "
      "positive; got epochs ",
      options.epochs(),
      " and steps_per_epoch ",
      options.steps_per_epoch(),
      ".");
  return options.epochs() * options.steps_per_epoch();
}

} // namespace

OneCycleLR::OneCycleLR(
    torch::optim::Optimizer& optimizer, OneCycleLROptions options)
    : LRScheduler(optimizer),
      options_(std::move(options)),
      total_steps_(number_of_steps(options_)) {
  const double pct_start = options_.pct_start();
  TORCH_CHECK(
      pct_start >= 0 && pct_start <= 1,
      "OneCycleLR: pct_start must be in [0, 1], but is ",
      pct_start,
      ".");
  const size_t groups = base_lrs().size();
  options_.max_lr(per_group(options_.max_lr(), groups, "max_lr"));

  const double rise_end = pct_start * static_cast<double>(total_steps_) - 1;
  const double last = static_cast<double>(total_steps_ - 1);
  if (options_.three_phase()) {
    const double fall_end =
        2 * pct_start * static_cast<double>(total_steps_) - 2;
    phases_ = {
        {rise_end, Level::kInitial, Level::kMax, true, false},
        {fall_end, Level::kMax, Level::kInitial, false, true},
        {last, Level::kInitial, Level::kMin, true, true}};
  } else {
    phases_ = {
        {rise_end, Level::kInitial, Level::kMax, true, false},
        {last, Level::kMax, Level::kMin, false, true}};
  }
  double begin = 0;
  for (const auto& phase : phases_) {
    TORCH_CHECK(
        phase.end_step != begin,
        "OneCycleLR: with total_steps ",
        total_steps_,
        " and pct_start ",
        pct_start,
        " a phase of the cycle has no steps; choose another pct_start.");
    begin = phase.end_step;
  }

  if (options_.cycle_momentum()) {
    for (const auto& group : optimizer.param_groups()) {
      TORCH_CHECK(
          detail::has_momentum(group.options()),
          "OneCycleLR: with cycle_momentum the optimizer must have a momentum "
          "or betas (SGD, RMSprop, Adam, AdamW); set cycle_momentum(false).");
    }
    options_.base_momentum(
        per_group(options_.base_momentum(), groups, "base_momentum"));
    options_.max_momentum(
        per_group(options_.max_momentum(), groups, "max_momentum"));
  }

  std::vector<double> initial = options_.max_lr();
  for (double& lr : initial) {
    lr /= options_.div_factor();
  }
  set_base_lrs(initial);
  start();
}

double OneCycleLR::level(Level level, size_t group) const {
  const double initial = base_lrs()[group];
  switch (level) {
    case Level::kInitial:
      return initial;
    case Level::kMax:
      return options_.max_lr()[group];
    case Level::kMin:
      break;
  }
  return initial / options_.final_div_factor();
}

double OneCycleLR::momentum(bool high, size_t group) const {
  return high ? options_.max_momentum()[group]
              : options_.base_momentum()[group];
}

double OneCycleLR::anneal(double start, double end, double fraction) const {
  if (options_.anneal_strategy() == OneCycleLROptions::Anneal::kLinear) {
    return (end - start) * fraction + start;
  }
  return end + (start - end) / 2.0 * (std::cos(kPi * fraction) + 1);
}

double OneCycleLR::get_lr(size_t group, double) {
  const int64_t step = last_epoch();
  TORCH_CHECK(
      step <= total_steps_,
      "OneCycleLR was stepped ",
      step,
      " times, but total_steps is ",
      total_steps_,
      ".");
  double begin = 0;
  size_t i = 0;
  while (static_cast<double>(step) > phases_[i].end_step &&
         i + 1 < phases_.size()) {
    begin = phases_[i].end_step;
    ++i;
  }
  const Phase& phase = phases_[i];
  const double fraction =
      (static_cast<double>(step) - begin) / (phase.end_step - begin);
  if (options_.cycle_momentum()) {
    detail::set_momentum(
        mutable_optimizer().param_groups()[group].options(),
        anneal(
            momentum(phase.high_momentum_at_start, group),
            momentum(phase.high_momentum_at_end, group),
            fraction));
  }
  return anneal(
      level(phase.start_lr, group), level(phase.end_lr, group), fraction);
}

std::map<std::string, std::vector<double>> OneCycleLR::options() const {
  const auto flag = [](bool value) {
    return std::vector<double>{value ? 1.0 : 0.0};
  };
  std::map<std::string, std::vector<double>> values{
      {"max_lr", options_.max_lr()},
      {"total_steps", {static_cast<double>(total_steps_)}},
      {"pct_start", {options_.pct_start()}},
      {"anneal_linear",
       flag(options_.anneal_strategy() == OneCycleLROptions::Anneal::kLinear)},
      {"cycle_momentum", flag(options_.cycle_momentum())},
      {"div_factor", {options_.div_factor()}},
      {"final_div_factor", {options_.final_div_factor()}},
      {"three_phase", flag(options_.three_phase())}};
  if (options_.cycle_momentum()) {
    values["base_momentum"] = options_.base_momentum();
    values["max_momentum"] = options_.max_momentum();
  }
  return values;
}

void OneCycleLR::save_values(SchedulerState& state) const {
  if (options_.cycle_momentum()) {
    auto& momentums = state.values["momentums"];
    for (const auto& group : optimizer().param_groups()) {
      momentums.push_back(detail::get_momentum(group.options()));
    }
  }
}

void OneCycleLR::load_values(const SchedulerState& state) {
  if (options_.cycle_momentum()) {
    auto& groups = mutable_optimizer().param_groups();
    const auto& momentums =
        detail::values_of(state, "momentums", groups.size());
    for (size_t i = 0; i < groups.size(); ++i) {
      detail::set_momentum(groups[i].options(), momentums[i]);
    }
  }
}

} // namespace accel::optim
