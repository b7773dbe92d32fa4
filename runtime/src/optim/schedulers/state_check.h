#pragma once

#include <accel/optim/schedulers/scheduler_state.h>

namespace accel::optim::detail {

using Values = std::map<std::string, std::vector<double>>;

/// Throws unless `state` is of the class `scheduler` constructed with
/// `options`.
void check_state(
    const SchedulerState& state,
    const std::string& scheduler,
    const Values& options);

/// The numbers saved as `name`, of which there must be `count`.
const std::vector<double>& values_of(
    const SchedulerState& state, const std::string& name, size_t count);

/// A single number saved as `name`.
double value_of(const SchedulerState& state, const std::string& name);

} // namespace accel::optim::detail
