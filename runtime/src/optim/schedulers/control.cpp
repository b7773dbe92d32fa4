#include <accel/optim/schedulers/control.h>

#include <algorithm>

namespace accel::detail {
namespace {

std::vector<SchedulerControl*>& schedulers() {
  // Never destroyed: schedulers may be, at the program's end, after it.
  static auto* all = new std::vector<SchedulerControl*>();
  return *all;
}

} // namespace

SchedulerControl::SchedulerControl() {
  schedulers().push_back(this);
}

SchedulerControl::SchedulerControl(const SchedulerControl&)
    : SchedulerControl() {}

SchedulerControl& SchedulerControl::operator=(const SchedulerControl&) {
  return *this; // which of the schedulers it is does not change
}

SchedulerControl::~SchedulerControl() {
  leave_to_another();
}

void SchedulerControl::leave_to_another() {
  auto& all = schedulers();
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

const std::vector<SchedulerControl*>& living_schedulers() {
  return schedulers();
}

} // namespace accel::detail
