#include "state_check.h"

#include <c10/util/Exception.h>

#include <sstream>

namespace accel::optim::detail {
namespace {

std::string print(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) {
    return "nothing";
  }
  std::ostringstream out;
  out.precision(17);
  const char* separator = "";
  for (const double value : found->second) {
    out << separator << value;
    separator = ", ";
  }
  return "[" + out.str() + "]";
}

void check_option(
    const SchedulerState& state,
    const Values& options,
    const std::string& name) {
  const auto saved = state.options.find(name);
  const auto ours = options.find(name);
  TORCH_CHECK(
      saved != state.options.end() && ours != options.end() &&
          saved->second == ours->second,
      "The state of this ",
      state.scheduler,
      " was saved with ",
      name,
      " = ",
      print(state.options, name),
      ", but this one was constructed with ",
      print(options, name),
      ". Construct it with the saved value, or do not load its state.");
}

} // namespace

void check_state(
    const SchedulerState& state,
    const std::string& scheduler,
    const Values& options) {
  TORCH_CHECK(
      state.scheduler == scheduler,
      "The state of a ",
      state.scheduler,
      " cannot be loaded into a ",
      scheduler,
      ".");
  for (const auto& option : options) {
    check_option(state, options, option.first);
  }
  for (const auto& option : state.options) {
    check_option(state, options, option.first);
  }
}

const std::vector<double>& values_of(
    const SchedulerState& state, const std::string& name, size_t count) {
  const auto found = state.values.find(name);
  TORCH_CHECK(
      found != state.values.end(),
      "The saved state of ",
      state.scheduler,
      " has no ",
      name,
      ".");
  TORCH_CHECK(
      found->second.size() == count,
      "The saved state of ",
      state.scheduler,
      " has ",
      found->second.size(),
      " values of ",
      name,
      ", expected ",
      count,
      ". Is the number of parameter groups another one?");
  return found->second;
}

double value_of(const SchedulerState& state, const std::string& name) {
  return values_of(state, name, 1)[0];
}

} // namespace accel::optim::detail
