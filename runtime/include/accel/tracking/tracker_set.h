#pragma once

#include <accel/tracking/registry.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace accel {

/// One entry of `log_with`: the name of a tracker, "all" for every built-in
/// one that writes to the logging folder, or a tracker of your own.
class ACCEL_API LogWith {
 public:
  /* implicit */ LogWith(std::string name) : name_(std::move(name)) {}
  /* implicit */ LogWith(const char* name) : name_(name) {}
  template <
      typename Tracker,
      std::enable_if_t<std::is_base_of_v<GeneralTracker, Tracker>, int> = 0>
  /* implicit */ LogWith(std::shared_ptr<Tracker> tracker)
      : tracker_(std::move(tracker)) {}

  /// Empty for a tracker of your own.
  const std::string& name() const {
    return name_;
  }
  /// Null for a tracker that is named.
  const std::shared_ptr<GeneralTracker>& tracker() const {
    return tracker_;
  }

 private:
  std::string name_;
  std::shared_ptr<GeneralTracker> tracker_;
};

/// The trackers of a training run. Every process makes the same calls; only
/// the main process records anything, the others do nothing.
class ACCEL_API TrackerSet {
 public:
  /// Throws, on every process, for names that are not available and for
  /// trackers that need a logging folder when `logging_dir` is empty.
  TrackerSet(
      bool main_process,
      std::vector<LogWith> log_with,
      std::string logging_dir = "");
  /// Ends what `end_training` did not; errors are printed, not thrown.
  ~TrackerSet();
  TrackerSet(const TrackerSet&) = delete;
  TrackerSet& operator=(const TrackerSet&) = delete;

  /// Constructs and starts the trackers and records `config`. `init_kwargs`
  /// holds options per tracker name, `{{"csv", {{"file", "run1.csv"}}}}`.
  /// Throws for options of a tracker that is not in `log_with`.
  void init_trackers(
      const std::string& project_name,
      const LogValues& config = {},
      const std::map<std::string, LogValues>& init_kwargs = {});

  /// Passes the values to every tracker. Throws when a name comes twice, and,
  /// on the main process, before `init_trackers` when there are trackers.
  void log(const LogValues& values, std::optional<int64_t> step = std::nullopt);

  /// The tracker of that name. Throws when there is none; on other than the
  /// main process it returns one that ignores every call.
  GeneralTracker& get_tracker(const std::string& name);
  /// The same with its own type, for what only it can do; null on other than
  /// the main process. Throws when the tracker is of another type.
  template <typename Tracker>
  Tracker* get_tracker(const std::string& name) {
    if (!main_process_) {
      return nullptr;
    }
    auto* tracker = dynamic_cast<Tracker*>(&get_tracker(name));
    check_type(name, tracker != nullptr);
    return tracker;
  }

  /// Finishes all trackers; later calls do nothing until `init_trackers`. All
  /// are finished even if one throws; the first error is thrown on.
  void end_training();

  /// The trackers that `init_trackers` has made; none on other processes than
  /// 0.
  const std::vector<std::shared_ptr<GeneralTracker>>& trackers() const {
    return trackers_;
  }

 private:
  static void check_type(const std::string& name, bool matches);

  bool main_process_;
  std::vector<LogWith> log_with_;
  std::string logging_dir_;
  std::vector<std::shared_ptr<GeneralTracker>> trackers_;
  bool initialized_ = false;
};

} // namespace accel
