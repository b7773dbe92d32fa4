#pragma once

#include <accel/export.h>

#include <map>
#include <string>
#include <vector>

namespace accel::optim {

/// What a scheduler needs to go on where another one of its kind stopped.
struct SchedulerState {
  /// Class of the scheduler, e.g. "OneCycleLR". Loading into another class is
  /// an error.
  std::string scheduler;
  /// Counters and learning rates (`last_epoch`, `base_lrs`, …).
  std::map<std::string, std::vector<double>> values;
  /// What the scheduler was constructed with. Not restored but compared: a
  /// run that is resumed with another `T_max` would follow neither curve.
  std::map<std::string, std::vector<double>> options;
};

/// The state as JSON text. Every double is written so that reading returns the
/// same bits. Throws `c10::Error` for a value that is not finite, which JSON
/// cannot hold.
ACCEL_API std::string to_json(const SchedulerState& state);

/// Throws `c10::Error` saying what is wrong when `json` is not such a state.
ACCEL_API SchedulerState scheduler_state_from_json(const std::string& json);

} // namespace accel::optim
