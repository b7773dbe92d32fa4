#include <accel/tracking/csv.h>
#include <accel/tracking/json_lines.h>
#include <accel/tracking/mlflow.h>
#include <accel/tracking/registry.h>
#include <accel/tracking/tensorboard.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>

namespace accel {
namespace {

template <typename Tracker>
detail::TrackerClass built_in(bool requires_logging_directory) {
  return {requires_logging_directory, [](const TrackerArguments& arguments) {
            return std::make_unique<Tracker>(arguments);
          }};
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, detail::TrackerClass> classes{
      {"csv", built_in<CsvTracker>(true)},
      {"jsonl", built_in<JsonLinesTracker>(true)},
      {"mlflow", built_in<MLflowTracker>(false)},
      {"tensorboard", built_in<TensorBoardTracker>(true)}};

  static Registry& get() {
    static Registry registry;
    return registry;
  }
};

} // namespace

std::string TrackerArguments::option(
    const std::string& name, const std::string& fallback) const {
  const auto found =
      std::find_if(options.begin(), options.end(), [&](const auto& option) {
        return option.first == name;
      });
  return found == options.end() ? fallback : found->second.str();
}

void TrackerArguments::check_options(
    const std::string& tracker, const std::vector<std::string>& known) const {
  for (const auto& option : options) {
    TORCH_CHECK(
        std::find(known.begin(), known.end(), option.first) != known.end(),
        "The tracker '",
        tracker,
        "' has no option '",
        option.first,
        "'; it has: ",
        known.empty() ? "none" : c10::Join(", ", known),
        ".");
  }
}

void register_tracker_class(
    const std::string& name,
    bool requires_logging_directory,
    TrackerFactory factory) {
  TORCH_CHECK(
      !name.empty() && name != "all",
      "A tracker cannot be called '",
      name,
      "'.");
  TORCH_CHECK(factory, "The factory of the tracker '", name, "' is empty.");
  auto& registry = Registry::get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const bool inserted =
      registry.classes
          .emplace(
              name,
              detail::TrackerClass{
                  requires_logging_directory, std::move(factory)})
          .second;
  TORCH_CHECK(
      inserted, "A tracker with the name '", name, "' is registered already.");
}

std::vector<std::string> available_trackers() {
  auto& registry = Registry::get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::vector<std::string> names;
  for (const auto& entry : registry.classes) {
    names.push_back(entry.first);
  }
  return names;
}

const detail::TrackerClass& detail::tracker_class(const std::string& name) {
  const auto names = available_trackers();
  auto& registry = Registry::get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.classes.find(name);
  TORCH_CHECK(
      found != registry.classes.end(),
      "There is no tracker '",
      name,
      "'; available are ",
      c10::Join(", ", names),
      ". Your own are made available with register_tracker_class.");
  return found->second;
}

} // namespace accel
