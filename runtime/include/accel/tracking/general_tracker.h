#pragma once

#include <accel/tracking/log_value.h>

#include <optional>
#include <string>

namespace accel {

/// Base class of everything that records a training run. Derive from it for
/// your own: pass an instance to `log_with`, or register it under a name
/// (`register_tracker_class`).
///
/// All calls come from the main process, from one thread. A tracker that
/// cannot record throws; it never drops values silently.
class ACCEL_API GeneralTracker {
 public:
  virtual ~GeneralTracker() = default;

  /// How `get_tracker` finds it.
  virtual std::string name() const = 0;
  /// Whether it needs a folder to write to.
  virtual bool requires_logging_directory() const {
    return false;
  }

  /// Called once by `init_trackers`.
  virtual void start() {}
  /// Records the configuration of the run (hyper-parameters).
  virtual void store_init_configuration(const LogValues& values) = 0;
  /// Records values, at `step` if there is one.
  virtual void log(
      const LogValues& values, std::optional<int64_t> step = std::nullopt) = 0;
  /// Called once by `end_training`; all has to be on disk afterwards.
  virtual void finish() {}
};

} // namespace accel
