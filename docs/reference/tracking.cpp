// Examples for the reference of trackers.

#include <accel/accel.h>
#include <accel/tracking.h>
#include <torch/torch.h>

#include <iostream>
#include <memory>

// @example accel::GeneralTracker accel::TrackerArguments accel::TrackerFactory accel
class Lines : public accel::GeneralTracker {
 public:
  explicit Lines(const accel::TrackerArguments& arguments)
      : prefix_(arguments.option("prefix", arguments.project_name)) {
    arguments.check_options("lines", {"prefix"});
    std::cerr << arguments.logging_dir << ' ' << arguments.options.size() << '\n';
  }
  std::string name() const override {
    return "lines";
  }
  bool requires_logging_directory() const override {
    return false;
  }
  void start() override {}
  void store_init_configuration(const accel::LogValues& values) override {
    log(values);
  }
  void log(const accel::LogValues& values, std::optional<int64_t> step = std::nullopt) override {
    for (const auto& [name, value] : values) {
      std::cerr << prefix_ << ' ' << step.value_or(0) << ' ' << name << '=' << value.str() << '\n';
    }
  }
  void finish() override {}

 private:
  std::string prefix_;
};

void make_known() {
  accel::register_tracker_class<Lines>("lines");
  accel::TrackerFactory factory = [](const accel::TrackerArguments& arguments) {
    return std::make_unique<Lines>(arguments);
  };
  accel::register_tracker_class("more_lines", /*requires_logging_directory=*/false, factory);
  for (const auto& name : accel::available_trackers()) {
    std::cout << name << '\n';
  }
}

// @example accel::LogValue accel::LogWith accel::LogValues accel
void values() {
  accel::LogValues values = {{"loss", 0.5}, {"note", "first run"}};
  for (const auto& [name, value] : values) {
    std::cout << name << ' ' << (value.is_text() ? value.str() : std::to_string(value.number())) << '\n';
  }
  accel::LogValue::Variant variant = values[0].second.value();
  accel::LogWith named("csv"), own(std::make_shared<Lines>(accel::TrackerArguments()));
  TORCH_CHECK(std::get<double>(variant) == 0.5 && named.name() == "csv" && own.tracker());
}

// @example accel::TrackerSet
void set(bool main_process) {
  accel::TrackerSet set(main_process, {"csv", "jsonl"}, "run/log");
  set.init_trackers("digits", {{"lr", 0.1}}, {{"csv", {{"file", "loss.csv"}}}});
  set.log({{"loss", 0.5}}, /*step=*/1);
  set.get_tracker("csv").log({{"accuracy", 0.9}});
  TORCH_CHECK(set.trackers().size() == (main_process ? 2 : 0));
  set.end_training();
}

// @example accel::CsvTracker accel::JsonLinesTracker accel::TensorBoardTracker accel::MLflowTracker
template <typename Tracker>
void record(const accel::TrackerArguments& arguments) {
  Tracker tracker(arguments);
  std::cerr << tracker.name() << (tracker.requires_logging_directory() ? " writes files\n" : "\n");
  tracker.start();
  tracker.store_init_configuration({{"lr", 0.1}});
  tracker.log({{"loss", 0.5}}, 1);
  tracker.finish();
}

void all_of_them(const accel::TrackerArguments& arguments) {
  record<accel::CsvTracker>(arguments);
  record<accel::JsonLinesTracker>(arguments);
  record<accel::TensorBoardTracker>(arguments);
  accel::TensorBoardTracker board(arguments);
  board.add_scalar("loss", 0.5, /*step=*/1);
  board.add_text("note", "a **bold** word", /*step=*/1);
  std::cerr << board.path() << '\n';
  if (accel::MLflowTracker::is_available()) {
    accel::MLflowTracker mlflow(arguments);
    mlflow.start();
    std::cerr << mlflow.run_id() << '\n';
  }
}
