#pragma once

#include <accel/tracking/general_tracker.h>

#include <functional>
#include <map>
#include <memory>

namespace accel {

/// What a tracker that is asked for by name is constructed with.
struct ACCEL_API TrackerArguments {
  /// The name given to `init_trackers`.
  std::string project_name;
  /// Folder for everything that is logged; empty when there is none, which a
  /// tracker with `requires_logging_directory` never sees.
  std::string logging_dir;
  /// This tracker's `init_kwargs`.
  LogValues options;

  /// The text of the option `name`, or `fallback`.
  std::string option(
      const std::string& name, const std::string& fallback = "") const;
  /// Throws unless every option is one of `known`: a misspelt one must not go
  /// unnoticed.
  void check_options(
      const std::string& tracker, const std::vector<std::string>& known) const;
};

/// Makes a tracker; called on process 0 by `init_trackers`.
using TrackerFactory =
    std::function<std::unique_ptr<GeneralTracker>(const TrackerArguments&)>;

/// Makes a tracker available to `log_with` under `name`. Built in are
/// "tensorboard", "jsonl", "csv" and "mlflow". Throws when the name is taken.
ACCEL_API void register_tracker_class(
    const std::string& name,
    bool requires_logging_directory,
    TrackerFactory factory);

/// The same for a class with a constructor from `const TrackerArguments&`.
template <typename Tracker>
void register_tracker_class(
    const std::string& name, bool requires_logging_directory = false) {
  register_tracker_class(
      name, requires_logging_directory, [](const TrackerArguments& arguments) {
        return std::make_unique<Tracker>(arguments);
      });
}

/// Names that `log_with` takes, sorted.
ACCEL_API std::vector<std::string> available_trackers();

namespace detail {

struct TrackerClass {
  bool requires_logging_directory = false;
  TrackerFactory factory;
};

/// Throws for an unknown name, listing the known ones.
const TrackerClass& tracker_class(const std::string& name);

} // namespace detail
} // namespace accel
