#include <accel/optim/schedulers/sequential_lr.h>

#include "state_check.h"

#include <algorithm>
#include <utility>

namespace accel::optim {
namespace {

/// Names of the i-th scheduler's numbers in the saved state.
std::string prefix(size_t i) {
  return std::to_string(i) + ".";
}

void add_prefixed(
    detail::Values& all,
    const detail::Values& values,
    const std::string& prefix) {
  for (const auto& [name, numbers] : values) {
    all[prefix + name] = numbers;
  }
}

detail::Values with_prefix(
    const detail::Values& all, const std::string& prefix) {
  detail::Values values;
  for (const auto& [name, numbers] : all) {
    if (name.compare(0, prefix.size(), prefix) == 0) {
      values[name.substr(prefix.size())] = numbers;
    }
  }
  return values;
}

} // namespace

SequentialLR::SequentialLR(
    torch::optim::Optimizer& optimizer,
    std::vector<std::shared_ptr<LRScheduler>> schedulers,
    std::vector<int64_t> milestones)
    : LRScheduler(optimizer),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  TORCH_CHECK(!schedulers_.empty(), "SequentialLR: there are no schedulers.");
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    TORCH_CHECK(
        schedulers_[i], "SequentialLR: scheduler ", i, " is a null pointer.");
    TORCH_CHECK(
        &schedulers_[i]->optimizer() == &optimizer,
        "SequentialLR: scheduler ",
        i,
        " was constructed on another optimizer.");
  }
  TORCH_CHECK(
      milestones_.size() + 1 == schedulers_.size(),
      "SequentialLR: ",
      schedulers_.size(),
      " schedulers need ",
      schedulers_.size() - 1,
      " milestones, but there are ",
      milestones_.size(),
      ".");
  int64_t previous = 0;
  for (const int64_t milestone : milestones_) {
    TORCH_CHECK(
        milestone > previous,
        "SequentialLR: the milestones must be positive and increasing, but ",
        milestone,
        " follows ",
        previous,
        ".");
    previous = milestone;
  }
  for (const auto& scheduler : schedulers_) {
    scheduler->leave_to_another();
  }
  start();
}

void SequentialLR::restart() {
  start();
}

void SequentialLR::on_epoch() {
  const int64_t epoch = last_epoch();
  if (epoch == 0) {
    schedulers_[0]->restart();
    return;
  }
  const auto next =
      std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  const auto& active = schedulers_[next - milestones_.begin()];
  if (next != milestones_.begin() && *(next - 1) == epoch) {
    active->restart();
  } else {
    active->step();
  }
}

double SequentialLR::get_lr(size_t, double current) {
  return current;
}

std::string SequentialLR::name() const {
  std::string names;
  for (const auto& scheduler : schedulers_) {
    names += (names.empty() ? "" : ",") + scheduler->state_dict().scheduler;
  }
  return "SequentialLR[" + names + "]";
}

std::map<std::string, std::vector<double>> SequentialLR::options() const {
  std::map<std::string, std::vector<double>> values{
      {"milestones",
       std::vector<double>(milestones_.begin(), milestones_.end())}};
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    add_prefixed(values, schedulers_[i]->state_dict().options, prefix(i));
  }
  return values;
}

void SequentialLR::save_values(SchedulerState& state) const {
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    add_prefixed(state.values, schedulers_[i]->state_dict().values, prefix(i));
  }
}

void SequentialLR::load_values(const SchedulerState& state) {
  std::vector<SchedulerState> before;
  try {
    for (size_t i = 0; i < schedulers_.size(); ++i) {
      SchedulerState inner = schedulers_[i]->state_dict();
      before.push_back(inner);
      inner.values = with_prefix(state.values, prefix(i));
      inner.options = with_prefix(state.options, prefix(i));
      schedulers_[i]->load_state_dict(inner);
    }
  } catch (...) {
    // All of them or none.
    for (size_t i = 0; i < before.size(); ++i) {
      schedulers_[i]->load_state_dict(before[i]);
    }
    throw;
  }
}

} // namespace accel::optim
