#include <accel/profile.h>

#include <accel/detail/communicator.h>

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <array>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace accel {
namespace {

namespace fs = std::filesystem;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

/// Whether one is recording: LibTorch has one profiler.
bool in_use = false;

/// What becomes of a step.
enum class Action { kNone, kWarmUp, kRecord };

Action action_of(const std::optional<ProfileSchedule>& schedule, int64_t step) {
  if (!schedule) {
    return Action::kRecord;
  }
  step -= schedule->skip_first();
  const int64_t cycle =
      schedule->wait() + schedule->warmup() + schedule->active();
  if (step < 0 ||
      (schedule->repeat() > 0 && step / cycle >= schedule->repeat())) {
    return Action::kNone;
  }
  step %= cycle;
  return step < schedule->wait()                       ? Action::kNone
      : step < schedule->wait() + schedule->warmup() ? Action::kWarmUp
                                                     : Action::kRecord;
}

/// Whether `step` is the last one of a cycle.
bool ends_cycle(const std::optional<ProfileSchedule>& schedule, int64_t step) {
  return schedule &&
      (step + 1 - schedule->skip_first()) %
          (schedule->wait() + schedule->warmup() + schedule->active()) ==
      0;
}

/// What LibTorch's profiler knows.
struct Known {
  ProfileActivity activity;
  ActivityType recorded;
  c10::DeviceType device;
};
constexpr std::array<Known, 6> kKnown{{
    {ProfileActivity::kCPU, ActivityType::CPU, c10::kCPU},
    {ProfileActivity::kCUDA, ActivityType::CUDA, c10::kCUDA},
    {ProfileActivity::kXPU, ActivityType::XPU, c10::kXPU},
    {ProfileActivity::kHPU, ActivityType::HPU, c10::kHPU},
    {ProfileActivity::kMTIA, ActivityType::MTIA, c10::kMTIA},
    {ProfileActivity::kPrivateUse1, ActivityType::PrivateUse1,
     c10::kPrivateUse1},
}};

ActivityType activity_of(ProfileActivity activity) {
  for (const auto& known : kKnown) {
    if (known.activity == activity) {
      return known.recorded;
    }
  }
  TORCH_CHECK(false, "accel: there is no such ProfileActivity.");
}

void check(const ProfileOptions& options) {
  if (const auto& schedule = options.schedule()) {
    TORCH_CHECK(
        schedule->skip_first() >= 0 && schedule->wait() >= 0 &&
            schedule->warmup() >= 0 && schedule->active() > 0 &&
            schedule->repeat() >= 0,
        "accel: the profile's schedule has skip_first ",
        schedule->skip_first(),
        ", wait ",
        schedule->wait(),
        ", warmup ",
        schedule->warmup(),
        ", active ",
        schedule->active(),
        " and repeat ",
        schedule->repeat(),
        "; active must be positive, and nothing negative.");
  }
  TORCH_CHECK(
      !options.output_trace_dir().empty() || options.on_trace_ready(),
      "accel: a profile needs an output_trace_dir to write to, or an "
      "on_trace_ready that takes what was recorded.");
}

} // namespace

namespace {

/// Writes at the end of a trace what the operations of each name have computed, which
/// LibTorch's own file leaves out.
void append_flops(
    const std::string& path,
    const std::vector<torch::autograd::profiler::KinetoEvent>& events) {
  std::map<std::string, std::pair<int64_t, uint64_t>> sums;
  for (const auto& event : events) {
    if (event.flops() > 0) {
      auto& [calls, flops] = sums[event.name()];
      ++calls;
      flops += event.flops();
    }
  }
  auto list = nlohmann::json::array();
  for (const auto& [name, sum] : sums) {
    list.push_back({{"name", name}, {"calls", sum.first}, {"flops", sum.second}});
  }
  // In place of the brace that ends the file: it may be large.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  auto end = static_cast<int64_t>(file.tellg());
  while (end > 0 && file && file.seekg(end - 1).peek() != '}') {
    --end;
  }
  if (end > 0 && file) {
    file.seekp(end - 1);
    file << ",\n\"flops\": " << list.dump() << "\n}\n";
  }
  file.flush();
  TORCH_CHECK(file, "accel: the profile ", path, " could not be completed.");
}

} // namespace

struct Profile::Recording {
  Recording(const ProfileOptions& given, c10::DeviceType device)
      : options(given) {
    const auto& wanted = options.activities();
    if (wanted.empty()) {
      // Of a kind of devices that the profiler does not know, nothing.
      for (const auto& known : kKnown) {
        if (known.device == c10::kCPU || known.device == device) {
          activities.insert(known.recorded);
        }
      }
    }
    for (const auto activity : wanted) {
      activities.insert(activity_of(activity));
    }
    if (!options.output_trace_dir().empty()) {
      fs::create_directories(options.output_trace_dir());
    }
  }

  ProfilerConfig config() const {
    return ProfilerConfig(
        ProfilerState::KINETO,
        // Operations are counted by the sizes of their inputs.
        options.record_shapes() || options.with_flops(),
        options.profile_memory(),
        /*with_stack=*/false,
        options.with_flops());
  }

  /// Steps begin in the recording that `action` asks for.
  void begin_step() {
    const Action action = action_of(options.schedule(), step);
    if (action != Action::kNone && !preparing && !recording) {
      torch::autograd::profiler::prepareProfiler(config(), activities);
      preparing = true;
    }
    if (action == Action::kRecord && !recording) {
      torch::autograd::profiler::enableProfiler(config(), activities);
      recording = true;
      preparing = false;
    }
    if (recording) {
      mark = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
      if (mark->isActive()) {
        mark->before("ProfilerStep#" + std::to_string(step));
      }
    }
  }

  void end_step() {
    mark.reset();
    if (recording && ends_cycle(options.schedule(), step)) {
      save();
    }
    ++step;
  }

  /// Ends the recording and writes it.
  void save() {
    const auto result = torch::autograd::profiler::disableProfiler();
    recording = false;
    const std::string name = "profile_" +
        std::to_string(detail::communicator().rank()) +
        (cycle == 0 ? "" : "_" + std::to_string(cycle)) + ".json";
    ++cycle;
    const bool temporary = options.output_trace_dir().empty();
    const fs::path path = temporary
        ? fs::temp_directory_path() / (std::to_string(::getpid()) + "_" + name)
        : fs::path(options.output_trace_dir()) / name;
    result->save(path.string());
    TORCH_CHECK(
        fs::exists(path),
        "accel: the profile could not be written to ",
        path.string(),
        ".");
    if (options.with_flops()) {
      append_flops(path.string(), result->events());
    }
    if (!temporary) {
      files.push_back(path.string());
    }
    if (options.on_trace_ready()) {
      options.on_trace_ready()(path.string());
    }
    if (temporary) {
      fs::remove(path);
    }
  }

  void end() {
    mark.reset();
    ended = true;
    if (preparing) {
      // LibTorch can only take a preparation back by using it.
      torch::autograd::profiler::enableProfiler(config(), activities);
      torch::autograd::profiler::disableProfiler();
      preparing = false;
    }
    if (recording) {
      save();
    }
  }

  ProfileOptions options;
  std::set<ActivityType> activities;
  std::unique_ptr<at::RecordFunction> mark;
  std::vector<std::string> files;
  int64_t step = 0;
  int64_t cycle = 0;
  bool preparing = false;
  bool recording = false;
  bool ended = false;
  int exceptions_at_start = std::uncaught_exceptions();
};

Profile::Profile(const ProfileOptions& options, c10::DeviceType device) {
  check(options);
  TORCH_CHECK(
      !in_use,
      "accel: a profile is being recorded already; there can be one at a time. "
      "Stop the other one first.");
  recording_ = std::make_unique<Recording>(options, device);
  recording_->begin_step();
  in_use = true;
}

Profile::Profile(Profile&& other) noexcept = default;

Profile::~Profile() {
  if (!recording_ || recording_->ended) {
    return;
  }
  try {
    in_use = false;
    recording_->end();
    if (std::uncaught_exceptions() == recording_->exceptions_at_start) {
      detail::communicator().barrier();
    }
  } catch (const std::exception& error) {
    TORCH_WARN("accel: the profile was not written: ", error.what());
  }
}

void Profile::step() {
  TORCH_CHECK(
      !recording_->ended, "accel: step was called on a profile that was stopped.");
  recording_->end_step();
  recording_->begin_step();
}

void Profile::stop() {
  TORCH_CHECK(
      !recording_->ended, "accel: stop was called twice on a profile.");
  in_use = false;
  recording_->end();
  detail::communicator().barrier();
}

const std::vector<std::string>& Profile::files() const {
  return recording_->files;
}

} // namespace accel
