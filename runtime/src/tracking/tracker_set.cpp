#include <accel/tracking/tracker_set.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

namespace accel {
namespace {

/// What `get_tracker` returns on other than the main process.
class BlankTracker : public GeneralTracker {
 public:
  std::string name() const override {
    return "";
  }
  void store_init_configuration(const LogValues&) override {}
  void log(const LogValues&, std::optional<int64_t>) override {}
};

/// "all": what needs nothing but a folder.
const char* const kAll[] = {"tensorboard", "jsonl", "csv"};

std::vector<LogWith> without_all(std::vector<LogWith> log_with) {
  std::vector<LogWith> result;
  std::set<std::string> names;
  const auto add = [&](const LogWith& entry) {
    if (entry.tracker() || names.insert(entry.name()).second) {
      result.push_back(entry);
    }
  };
  for (const auto& entry : log_with) {
    if (entry.name() == "all") {
      for (const char* name : kAll) {
        add(name);
      }
    } else {
      add(entry);
    }
  }
  return result;
}

void check_unique(const LogValues& values, const char* what) {
  std::set<std::string> names;
  for (const auto& value : values) {
    TORCH_CHECK(
        names.insert(value.first).second,
        what,
        ": '",
        value.first,
        "' is given twice.");
  }
}

} // namespace

TrackerSet::TrackerSet(
    bool main_process, std::vector<LogWith> log_with, std::string logging_dir)
    : main_process_(main_process),
      log_with_(without_all(std::move(log_with))),
      logging_dir_(std::move(logging_dir)) {
  for (const auto& entry : log_with_) {
    TORCH_CHECK(
        entry.tracker() || !entry.name().empty(),
        "log_with holds an empty name or a null tracker.");
    const bool needs_directory =
        entry.tracker()
            ? entry.tracker()->requires_logging_directory()
            : detail::tracker_class(entry.name()).requires_logging_directory;
    TORCH_CHECK(
        !needs_directory || !logging_dir_.empty(),
        "The tracker '",
        entry.tracker() ? entry.tracker()->name() : entry.name(),
        "' needs a folder to write to: set project_dir or logging_dir.");
  }
}

TrackerSet::~TrackerSet() {
  try {
    end_training();
  } catch (const std::exception& error) {
    TORCH_WARN("A tracker could not be finished: ", error.what());
  }
}

void TrackerSet::init_trackers(
    const std::string& project_name,
    const LogValues& config,
    const std::map<std::string, LogValues>& init_kwargs) {
  check_unique(config, "The configuration");
  for (const auto& [name, options] : init_kwargs) {
    const bool known = std::any_of(
        log_with_.begin(), log_with_.end(), [&](const LogWith& entry) {
          return !entry.tracker() && entry.name() == name;
        });
    TORCH_CHECK(
        known,
        "init_kwargs has options for '",
        name,
        "', which is not among the names in log_with.");
  }
  if (!main_process_) {
    return;
  }
  end_training();
  for (const auto& entry : log_with_) {
    if (entry.tracker()) {
      trackers_.push_back(entry.tracker());
      continue;
    }
    TrackerArguments arguments{project_name, logging_dir_, {}};
    const auto options = init_kwargs.find(entry.name());
    if (options != init_kwargs.end()) {
      arguments.options = options->second;
    }
    trackers_.push_back(detail::tracker_class(entry.name()).factory(arguments));
  }
  initialized_ = true;
  for (const auto& tracker : trackers_) {
    tracker->start();
  }
  if (!config.empty()) {
    for (const auto& tracker : trackers_) {
      tracker->store_init_configuration(config);
    }
  }
}

void TrackerSet::log(const LogValues& values, std::optional<int64_t> step) {
  check_unique(values, "log");
  if (!main_process_) {
    return;
  }
  TORCH_CHECK(
      initialized_ || log_with_.empty(),
      "log was called before init_trackers, or after end_training: nothing "
      "would be recorded.");
  for (const auto& tracker : trackers_) {
    tracker->log(values, step);
  }
}

GeneralTracker& TrackerSet::get_tracker(const std::string& name) {
  if (!main_process_) {
    static BlankTracker blank;
    return blank;
  }
  std::string names;
  for (const auto& tracker : trackers_) {
    if (tracker->name() == name) {
      return *tracker;
    }
    names += (names.empty() ? "" : ", ") + tracker->name();
  }
  TORCH_CHECK(
      false,
      "There is no tracker '",
      name,
      "' in this run; there ",
      initialized_ ? "is: " + (names.empty() ? "none" : names)
                   : std::string("are none before init_trackers"),
      ".");
}

void TrackerSet::check_type(const std::string& name, bool matches) {
  TORCH_CHECK(
      matches, "The tracker '", name, "' is of another type than asked for.");
}

void TrackerSet::end_training() {
  std::exception_ptr first_error;
  for (const auto& tracker : trackers_) {
    try {
      tracker->finish();
    } catch (...) {
      if (!first_error) {
        first_error = std::current_exception();
      }
    }
  }
  trackers_.clear();
  initialized_ = false;
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

} // namespace accel
