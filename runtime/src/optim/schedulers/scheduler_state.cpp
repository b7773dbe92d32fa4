#include <accel/optim/schedulers/scheduler_state.h>

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace accel::optim {
namespace {

using Values = std::map<std::string, std::vector<double>>;

void check_finite(const std::string& scheduler, const Values& values) {
  for (const auto& [name, numbers] : values) {
    for (const double number : numbers) {
      TORCH_CHECK(
          std::isfinite(number),
          "The state of ",
          scheduler,
          " cannot be saved: ",
          name,
          " is ",
          number,
          ".");
    }
  }
}

} // namespace

std::string to_json(const SchedulerState& state) {
  check_finite(state.scheduler, state.values);
  check_finite(state.scheduler, state.options);
  return nlohmann::json{
      {"scheduler", state.scheduler},
      {"values", state.values},
      {"options", state.options}}
      .dump();
}

SchedulerState scheduler_state_from_json(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return {
        json.at("scheduler").get<std::string>(),
        json.at("values").get<Values>(),
        json.at("options").get<Values>()};
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK(
        false, "This is not the saved state of a scheduler: ", error.what());
  }
}

} // namespace accel::optim
