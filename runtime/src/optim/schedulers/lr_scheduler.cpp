#include <accel/optim/schedulers/lr_scheduler.h>

#include "state_check.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace accel::optim {
namespace {

/// The living schedulers, oldest first: where a new one looks for the learning
/// rates from before scheduling.
struct Living {
  std::mutex mutex;
  std::vector<const LRScheduler*> schedulers;

  static Living& get() {
    // Never destroyed: schedulers may be, at the program's end, after it.
    static auto* living = new Living();
    return *living;
  }
};

void write_lrs(
    torch::optim::Optimizer& optimizer, const std::vector<double>& lrs) {
  auto& groups = optimizer.param_groups();
  TORCH_CHECK(
      groups.size() == lrs.size(),
      "The optimizer had ",
      lrs.size(),
      " parameter groups when the scheduler was constructed, and has ",
      groups.size(),
      " now. Add all groups before constructing the scheduler.");
  for (size_t i = 0; i < lrs.size(); ++i) {
    groups[i].options().set_lr(lrs[i]);
  }
}

} // namespace

LRScheduler::LRScheduler(torch::optim::Optimizer& optimizer)
    : torch::optim::LRScheduler(optimizer),
      optimizer_(&optimizer),
      base_lrs_(get_current_lrs()) {
  auto& living = Living::get();
  const std::lock_guard<std::mutex> lock(living.mutex);
  // The comparison with what that scheduler set last also keeps apart an
  // optimizer that has got the address of one that is gone.
  const auto other = std::find_if(
      living.schedulers.rbegin(),
      living.schedulers.rend(),
      [&](const LRScheduler* candidate) {
        return candidate->optimizer_ == optimizer_ &&
               candidate->last_set_ == base_lrs_;
      });
  if (other != living.schedulers.rend()) {
    base_lrs_ = (*other)->base_lrs_;
  }
  living.schedulers.push_back(this);
}

LRScheduler::~LRScheduler() {
  auto& living = Living::get();
  const std::lock_guard<std::mutex> lock(living.mutex);
  auto& all = living.schedulers;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

std::vector<double> LRScheduler::get_lrs() {
  ++last_epoch_;
  on_epoch();
  auto lrs = get_current_lrs();
  TORCH_CHECK(
      lrs.size() == base_lrs_.size(),
      "The optimizer had ",
      base_lrs_.size(),
      " parameter groups when ",
      name(),
      " was constructed, and has ",
      lrs.size(),
      " now. Add all groups before constructing the scheduler.");
  for (size_t group = 0; group < lrs.size(); ++group) {
    lrs[group] = get_lr(group, lrs[group]);
  }
  last_set_ = lrs;
  return lrs;
}

void LRScheduler::set_epoch(int64_t epoch) {
  last_epoch_ = epoch - 1;
  set_lrs(get_lrs());
}

void LRScheduler::start() {
  set_epoch(0);
  step_count_ = 1;
}

void LRScheduler::restart() {
  set_lrs(base_lrs_);
  start();
}

void LRScheduler::set_lrs(const std::vector<double>& lrs) {
  write_lrs(*optimizer_, lrs);
  last_set_ = lrs;
}

void LRScheduler::set_base_lrs(std::vector<double> lrs) {
  base_lrs_ = std::move(lrs);
}

SchedulerState LRScheduler::state_dict() const {
  SchedulerState state;
  state.scheduler = name();
  state.options = options();
  save_values(state);
  state.values["last_epoch"] = {static_cast<double>(last_epoch_)};
  state.values["step_count"] = {static_cast<double>(step_count_)};
  state.values["base_lrs"] = base_lrs_;
  state.values["lrs"] = get_current_lrs();
  return state;
}

void LRScheduler::load_state_dict(const SchedulerState& state) {
  detail::check_state(state, name(), options());
  const size_t groups = optimizer_->param_groups().size();
  const double last_epoch = detail::value_of(state, "last_epoch");
  const double step_count = detail::value_of(state, "step_count");
  const auto& base_lrs = detail::values_of(state, "base_lrs", groups);
  const auto& lrs = detail::values_of(state, "lrs", groups);
  load_values(state);
  last_epoch_ = static_cast<int64_t>(last_epoch);
  step_count_ = static_cast<unsigned>(step_count);
  base_lrs_ = base_lrs;
  set_lrs(lrs);
}

std::string LRScheduler::save_scheduler() const {
  return to_json(state_dict());
}

void LRScheduler::load_scheduler(const std::string& state) {
  load_state_dict(scheduler_state_from_json(state));
}

void LRScheduler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("state", c10::IValue(to_json(state_dict())));
}

void LRScheduler::load(torch::serialize::InputArchive& archive) {
  c10::IValue state;
  archive.read("state", state);
  load_state_dict(scheduler_state_from_json(state.toStringRef()));
}

torch::serialize::OutputArchive& operator<<(
    torch::serialize::OutputArchive& archive, const LRScheduler& scheduler) {
  scheduler.save(archive);
  return archive;
}

torch::serialize::InputArchive& operator>>(
    torch::serialize::InputArchive& archive, LRScheduler& scheduler) {
  scheduler.load(archive);
  return archive;
}

} // namespace accel::optim
