#include "support.h"

#include <accel/tracking.h>

namespace {

/// Remembers its calls.
class Recorder : public accel::GeneralTracker {
 public:
  explicit Recorder(std::string name = "recorder") : name_(std::move(name)) {}
  explicit Recorder(const accel::TrackerArguments& arguments)
      : name_("registered") {
    calls.push_back(
        "make " + arguments.project_name + " " +
        arguments.option("mode", "default"));
  }

  std::string name() const override {
    return name_;
  }
  void start() override {
    calls.push_back("start");
  }
  void store_init_configuration(const accel::LogValues& values) override {
    calls.push_back("config " + values.at(0).first);
  }
  void log(
      const accel::LogValues& values, std::optional<int64_t> step) override {
    calls.push_back(
        "log " + values.at(0).first + "=" + values.at(0).second.str() +
        (step ? " at " + std::to_string(*step) : ""));
  }
  void finish() override {
    calls.push_back("finish");
    if (fail_at_finish) {
      throw std::runtime_error("disk full");
    }
  }

  std::vector<std::string> calls;
  bool fail_at_finish = false;

 private:
  std::string name_;
};

using Calls = std::vector<std::string>;

} // namespace

TEST(TrackerSet, CallsReachEveryTrackerInOrder) {
  auto first = std::make_shared<Recorder>("first");
  auto second = std::make_shared<Recorder>("second");
  accel::TrackerSet trackers(true, {first, second});
  EXPECT_THROWS_WITH(trackers.log({{"a", 1}}), "before init_trackers");
  EXPECT_THROWS_WITH(trackers.get_tracker("first"), "before init_trackers");
  trackers.init_trackers("project", {{"lr", 0.1}});
  trackers.log({{"loss", 0.5}}, 3);
  trackers.log({{"loss", 0.25}});
  EXPECT_EQ(&trackers.get_tracker("second"), second.get());
  EXPECT_EQ(trackers.get_tracker<Recorder>("first"), first.get());
  EXPECT_THROWS_WITH(
      trackers.get_tracker<accel::CsvTracker>("first"), "of another type");
  EXPECT_THROWS_WITH(trackers.get_tracker("third"), "there is: first, second");
  trackers.end_training();
  trackers.end_training();
  const Calls expected{
      "start", "config lr", "log loss=0.5 at 3", "log loss=0.25", "finish"};
  EXPECT_EQ(first->calls, expected);
  EXPECT_EQ(second->calls, expected);
  EXPECT_THROWS_WITH(trackers.log({{"a", 1}}), "after end_training");
}

TEST(TrackerSet, OtherProcessesRecordNothing) {
  const test::TemporaryDirectory directory;
  auto recorder = std::make_shared<Recorder>();
  accel::TrackerSet trackers(
      false, {"all", recorder}, directory.path().string());
  trackers.init_trackers("project", {{"lr", 0.1}});
  trackers.log({{"loss", 0.5}}, 3);
  trackers.get_tracker("anything").log({{"loss", 0.5}}, 3);
  EXPECT_EQ(trackers.get_tracker<Recorder>("recorder"), nullptr);
  trackers.end_training();
  EXPECT_TRUE(recorder->calls.empty());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  // What is wrong is wrong on every process.
  EXPECT_THROWS_WITH(trackers.log({{"a", 1}, {"a", 2}}), "'a' is given twice");
}

TEST(TrackerSet, AllWritesEveryKindOfFile) {
  const test::TemporaryDirectory directory;
  {
    accel::TrackerSet trackers(true, {"all", "csv"}, directory.path().string());
    trackers.init_trackers("p", {}, {{"csv", {{"file", "other.csv"}}}});
    EXPECT_EQ(trackers.trackers().size(), 3u);
    trackers.log({{"loss", 0.5}}, 1);
    EXPECT_NE(
        trackers.get_tracker<accel::TensorBoardTracker>("tensorboard"),
        nullptr);
  }
  const auto project = directory.path() / "p";
  EXPECT_TRUE(std::filesystem::exists(project / "metrics.jsonl"));
  EXPECT_NE(
      test::read_file(project / "other.csv").find("0.5"), std::string::npos);
}

TEST(TrackerSet, RegisteredTrackers) {
  accel::register_tracker_class<Recorder>("registered");
  EXPECT_THROWS_WITH(
      accel::register_tracker_class<Recorder>("registered"), "already");
  EXPECT_THROWS_WITH(accel::register_tracker_class<Recorder>("all"), "'all'");
  accel::TrackerSet trackers(true, {"registered"});
  trackers.init_trackers("p", {}, {{"registered", {{"mode", "fast"}}}});
  EXPECT_EQ(
      trackers.get_tracker<Recorder>("registered")->calls,
      (Calls{"make p fast", "start"}));
}

TEST(TrackerSet, MistakesAreSaid) {
  EXPECT_THROWS_WITH(
      accel::TrackerSet(true, {"wandb"}, "dir"),
      "no tracker 'wandb'; available are csv, jsonl, mlflow");
  EXPECT_THROWS_WITH(
      accel::TrackerSet(false, {"csv"}), "set project_dir or logging_dir");
  EXPECT_THROWS_WITH(
      accel::TrackerSet(true, {std::shared_ptr<Recorder>()}), "null tracker");
  auto recorder = std::make_shared<Recorder>();
  accel::TrackerSet trackers(true, {recorder});
  EXPECT_THROWS_WITH(
      trackers.init_trackers("p", {}, {{"csv", {}}}), "options for 'csv'");
  EXPECT_THROWS_WITH(
      trackers.init_trackers("p", {{"a", 1}, {"a", 2}}), "given twice");
}

TEST(TrackerSet, AllAreFinishedEvenIfOneFails) {
  auto first = std::make_shared<Recorder>("first");
  auto second = std::make_shared<Recorder>("second");
  first->fail_at_finish = true;
  accel::TrackerSet trackers(true, {first, second});
  trackers.init_trackers("p");
  EXPECT_THROWS_WITH(trackers.end_training(), "disk full");
  EXPECT_EQ(second->calls, (Calls{"start", "finish"}));
}

TEST(TrackerSet, WithoutTrackersLoggingIsNothing) {
  accel::TrackerSet trackers(true, {});
  trackers.log({{"a", 1}});
  trackers.init_trackers("p");
  trackers.log({{"a", 1}});
  trackers.end_training();
  EXPECT_TRUE(trackers.trackers().empty());
}
