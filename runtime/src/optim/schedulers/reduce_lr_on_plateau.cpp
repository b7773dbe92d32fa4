#include <accel/optim/schedulers/reduce_lr_on_plateau.h>

#include "state_check.h"

#include <algorithm>
#include <utility>

namespace accel::optim {
namespace {

constexpr const char* kName = "ReduceLROnPlateau";

} // namespace

ReduceLROnPlateau::ReduceLROnPlateau(
    torch::optim::Optimizer& optimizer, Options options)
    : optimizer_(optimizer), options_(std::move(options)) {
  TORCH_CHECK(
      options_.factor() < 1,
      "ReduceLROnPlateau: factor must be below 1, but is ",
      options_.factor(),
      ".");
  auto min_lr = options_.min_lr();
  const size_t groups = optimizer.param_groups().size();
  if (min_lr.size() == 1) {
    min_lr.resize(groups, min_lr[0]);
  }
  TORCH_CHECK(
      min_lr.size() == groups,
      "ReduceLROnPlateau: min_lr has ",
      min_lr.size(),
      " values for ",
      groups,
      " parameter groups; give one, or one per group.");
  options_.min_lr(std::move(min_lr));
}

bool ReduceLROnPlateau::better(double metric) const {
  const bool minimize = options_.mode() == Options::Mode::kMin;
  if (best_.empty()) {
    const double infinity = std::numeric_limits<double>::infinity();
    return minimize ? metric < infinity : metric > -infinity;
  }
  const bool relative =
      options_.threshold_mode() == Options::ThresholdMode::kRel;
  const double best = best_[0];
  const double threshold = options_.threshold();
  if (minimize) {
    return metric < (relative ? best * (1.0 - threshold) : best - threshold);
  }
  return metric > (relative ? best * (1.0 + threshold) : best + threshold);
}

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (better(metric)) {
    best_ = {metric};
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ > options_.patience()) {
    reduce();
    cooldown_left_ = options_.cooldown();
    bad_epochs_ = 0;
  }
}

void ReduceLROnPlateau::reduce() {
  auto& groups = optimizer_.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    const double old_lr = groups[i].options().get_lr();
    const double new_lr =
        std::max(old_lr * options_.factor(), options_.min_lr().at(i));
    if (old_lr - new_lr > options_.eps()) {
      groups[i].options().set_lr(new_lr);
    }
  }
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const {
  std::vector<double> lrs;
  for (const auto& group : std::as_const(optimizer_).param_groups()) {
    lrs.push_back(group.options().get_lr());
  }
  return lrs;
}

std::map<std::string, std::vector<double>> ReduceLROnPlateau::option_values()
    const {
  return {
      {"maximize", {options_.mode() == Options::Mode::kMax ? 1.0 : 0.0}},
      {"factor", {options_.factor()}},
      {"patience", {static_cast<double>(options_.patience())}},
      {"threshold", {options_.threshold()}},
      {"absolute",
       {options_.threshold_mode() == Options::ThresholdMode::kAbs ? 1.0 : 0.0}},
      {"cooldown", {static_cast<double>(options_.cooldown())}},
      {"min_lr", options_.min_lr()},
      {"eps", {options_.eps()}}};
}

SchedulerState ReduceLROnPlateau::state_dict() const {
  return {
      kName,
      {{"best", best_},
       {"bad_epochs", {static_cast<double>(bad_epochs_)}},
       {"cooldown_left", {static_cast<double>(cooldown_left_)}},
       {"last_epoch", {static_cast<double>(last_epoch_)}},
       {"lrs", get_last_lr()}},
      option_values()};
}

void ReduceLROnPlateau::load_state_dict(const SchedulerState& state) {
  detail::check_state(state, kName, option_values());
  auto& groups = optimizer_.param_groups();
  const auto best = state.values.find("best");
  TORCH_CHECK(
      best != state.values.end() && best->second.size() <= 1,
      "The saved state of ReduceLROnPlateau has no best metric.");
  const double bad_epochs = detail::value_of(state, "bad_epochs");
  const double cooldown_left = detail::value_of(state, "cooldown_left");
  const double last_epoch = detail::value_of(state, "last_epoch");
  const auto& lrs = detail::values_of(state, "lrs", groups.size());
  best_ = best->second;
  bad_epochs_ = static_cast<int64_t>(bad_epochs);
  cooldown_left_ = static_cast<int64_t>(cooldown_left);
  last_epoch_ = static_cast<int64_t>(last_epoch);
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(lrs[i]);
  }
}

std::string ReduceLROnPlateau::save_scheduler() const {
  return to_json(state_dict());
}

void ReduceLROnPlateau::load_scheduler(const std::string& state) {
  load_state_dict(scheduler_state_from_json(state));
}

void ReduceLROnPlateau::save(torch::serialize::OutputArchive& archive) const {
  archive.write("state", c10::IValue(to_json(state_dict())));
}

void ReduceLROnPlateau::load(torch::serialize::InputArchive& archive) {
  c10::IValue state;
  archive.read("state", state);
  load_state_dict(scheduler_state_from_json(state.toStringRef()));
}

torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive,
    const ReduceLROnPlateau& scheduler) {
  scheduler.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(
    torch::serialize::InputArchive& archive, ReduceLROnPlateau& scheduler) {
  scheduler.load(archive);
  return archive;
}

} // namespace accel::optim
