#include "verify.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <future>
#include <iostream>
#include <mutex>
#include <thread>

#include "environment.h"
#include "error.h"
#include "process.h"
#include "rounding.h"
#include "run.h"

namespace accel::verify {
namespace {

namespace fs = std::filesystem;

/// A folder for the runs, removed at the end where nobody wants to keep it.
class RunsFolder {
 public:
  explicit RunsFolder(const std::string& keep) : keep_(!keep.empty()) {
    if (keep_) {
      path_ = fs::absolute(keep);
      fs::create_directories(path_);
      if (!fs::is_empty(path_)) {
        throw launcher::Error(
            launcher::kUsage,
            "--keep: " + keep + " is not empty, and nothing is overwritten");
      }
      return;
    }
    std::string pattern =
        (fs::temp_directory_path() / "accel-verify-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      launcher::throw_errno("a temporary folder cannot be made");
    }
    path_ = pattern;
  }
  ~RunsFolder() {
    if (!keep_) {
      std::error_code none;
      fs::remove_all(path_, none);
    }
  }
  RunsFolder(const RunsFolder&) = delete;
  RunsFolder& operator=(const RunsFolder&) = delete;

  const fs::path& path() const {
    return path_;
  }

 private:
  bool keep_;
  fs::path path_;
};

/// Lets runs start while there are cores for their processes.
class Cores {
 public:
  explicit Cores(int count) : free_(count), all_(count) {}

  void take(int count) {
    count = std::min(count, all_);
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return free_ >= count; });
    free_ -= count;
  }
  void give(int count) {
    count = std::min(count, all_);
    const std::lock_guard<std::mutex> lock(mutex_);
    free_ += count;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  const int all_;
};

/// Relative paths that lead out of the working directory would mean something
/// else in a run's own one.
std::string anchored(const std::string& argument) {
  const size_t equals = argument.find('=');
  const size_t begin = equals == std::string::npos ? 0 : equals + 1;
  const std::string value = argument.substr(begin);
  if (value.rfind("../", 0) != 0 && value.find("/../") == std::string::npos) {
    return argument;
  }
  std::error_code none;
  return fs::exists(value, none) && fs::path(value).is_relative()
      ? argument.substr(0, begin) + fs::canonical(value).string()
      : argument;
}

std::string processes_text(int processes) {
  return std::to_string(processes) +
      (processes == 1 ? " process" : " processes");
}

void say(const std::string& text) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::cerr << "accel verify: " << text << std::endl;
}

std::vector<RunPlan> make_plans(
    const VerifyOptions& options, Widening widening, const fs::path& folder) {
  RunPlan common;
  common.source = fs::current_path();
  common.widening = widening;
  common.seed = options.seed;
  common.begin = std::time(nullptr);
  common.max_steps = options.max_steps;
  common.timeout = options.timeout;
  std::vector<std::string> arguments;
  for (const auto& argument : options.arguments) {
    arguments.push_back(anchored(argument));
  }
  std::vector<RunPlan> plans;
  const auto add = [&](const std::string& program,
                       const std::string& name,
                       const std::string& directory,
                       int processes) {
    RunPlan plan = common;
    plan.name = name;
    plan.processes = processes;
    plan.program = {fs::canonical(launcher::find_program(program)).string()};
    plan.program.insert(
        plan.program.end(), arguments.begin(), arguments.end());
    plan.directory = folder / directory;
    plans.push_back(plan);
    return &plans.back();
  };
  add(options.original, "the original", "original", 0);
  if (options.repeat) {
    add(options.original, "the original, again", "original-again", 0);
    // Seeds that are taken from another clock than time(), most often in seconds,
    // must differ.
    plans.back().delay = 1.1;
  }
  for (const int count : options.processes) {
    const std::string text = processes_text(count);
    add(options.migrated,
        "the migrated program with " + text,
        "migrated-" + std::to_string(count),
        count)
        ->way = text;
  }
  for (size_t i = 0; i < options.launched.size(); ++i) {
    const auto& launched = options.launched[i];
    RunPlan* plan = add(
        options.migrated,
        "the migrated program with " + launched.text,
        "launched-" + std::to_string(i + 1),
        launched.processes);
    plan->way = launched.text;
    plan->launch = launched.options;
  }
  return plans;
}

std::vector<Run> run_all(
    const std::vector<RunPlan>& plans,
    const Installation& installation,
    int jobs) {
  Cores cores(jobs > 0 ? jobs : launcher::available_cores());
  std::vector<std::future<Run>> futures;
  for (const auto& plan : plans) {
    futures.push_back(std::async(std::launch::async, [&] {
      const int needed = std::max(1, plan.processes);
      std::this_thread::sleep_for(
          std::chrono::duration<double>(plan.delay));
      cores.take(needed);
      try {
        Run result = run(plan, installation);
        cores.give(needed);
        const auto& trace = result.traces[0];
        const std::string end = result.timed_out ? "timed out"
            : result.exit_code != 0
            ? "failed with exit code " + std::to_string(result.exit_code)
            : std::to_string(trace ? trace->backwards.size() : 0) +
                " backward calls";
        say(plan.name + ": " + end + ", " + short_number(result.seconds) +
            " s");
        return result;
      } catch (...) {
        cores.give(needed);
        throw;
      }
    }));
  }
  std::vector<Run> runs;
  std::exception_ptr failed;
  for (auto& future : futures) {
    try {
      runs.push_back(future.get());
    } catch (...) {
      failed = failed ? failed : std::current_exception();
    }
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
  return runs;
}

bool failed(const Run& run) {
  return run.timed_out || run.exit_code != 0;
}

/// Whether the original would not do without the float32 that it names.
bool needs_float(const Run& original) {
  if (failed(original)) {
    return !original.timed_out;
  }
  const auto& trace = original.traces[0];
  return trace &&
      ((!trace->backwards.empty() &&
        trace->backwards.front().dtype == Dtype::kFloat) ||
       std::count(trace->notes.begin(), trace->notes.end(), kWroteAsFloat) !=
           0);
}

struct Runs {
  std::vector<Run> all;
  /// What they were made by.
  std::vector<RunPlan> plans;
  /// What the reader of the verdict must know of them; may be empty.
  std::string note;
};

/// `--double` first leaves float32 that a program names as it is: it may read
/// the elements as float. Where that cannot be, it widens all, or, where the
/// program reads or fills as float what names no dtype, the modules and what
/// meets them. A program that can be run no such way is compared in float32,
/// which is said.
Runs run_all(
    const VerifyOptions& options,
    const Installation& installation,
    const fs::path& folder) {
  const auto with = [&](Widening widening, const fs::path& runs) {
    auto plans = make_plans(options, widening, runs);
    auto all = run_all(plans, installation, options.jobs);
    return Runs{std::move(all), std::move(plans), ""};
  };
  if (!options.to_double) {
    return with(Widening::kNone, folder);
  }
  auto named = with(Widening::kDefault, folder);
  if (!needs_float(named.all[0])) {
    return named;
  }
  say("the original mixes float64 with the float32 that it names; once more, "
      "with that widened, too");
  auto widened = with(Widening::kAll, folder / "all-double");
  if (!failed(widened.all[0])) {
    return widened;
  }
  if (!failed(named.all[0])) {
    return named;
  }
  say("the original takes elements for float; once more, with its modules in "
      "float64 and its data as they are");
  auto modules = with(Widening::kModules, folder / "modules-double");
  if (!needs_float(modules.all[0])) {
    return modules;
  }
  say("the original cannot be run in float64; once more, as it is");
  auto plain = with(Widening::kNone, folder / "as-it-is");
  if (failed(plain.all[0])) {
    return named;
  }
  plain.note =
      "compared in float32, not in float64: the original takes elements for "
      "float (data_ptr<float>(), accessor<float, N>()) and fails with --double";
  return plain;
}

/// One more run of the original, where that can say something about what was
/// found.
void ask_for_rounding(
    const VerifyOptions& options,
    const Installation& installation,
    const Runs& runs,
    const Run& repeat,
    std::vector<Verdict>& verdicts) {
  const size_t first = runs.all.size() - verdicts.size();
  std::vector<Verdict*> doubtful;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    if (may_be_rounding(verdicts[i], runs.all[first + i])) {
      doubtful.push_back(&verdicts[i]);
    }
  }
  if (doubtful.empty()) {
    return;
  }
  RunPlan plan = runs.plans[0];
  plan.name = "the original, computed with other instructions";
  plan.directory += "-other-instructions";
  plan.other_instructions = true;
  const auto other = run_all({plan}, installation, options.jobs);
  const auto rounding =
      judge(runs.all[0], repeat, other[0], options.tolerance);
  for (auto* verdict : doubtful) {
    weigh_rounding(rounding, *verdict);
  }
}

} // namespace

Result verify(const VerifyOptions& options) {
  Result result;
  result.options = options;
  const auto installation = find_installation();
  const RunsFolder folder(options.keep);
  const auto runs = run_all(options, installation, folder.path());
  result.note = runs.note;
  const Run& original = runs.all[0];
  const Run& repeat = options.repeat ? runs.all[1] : runs.all[0];
  result.seconds_original = original.seconds;
  result.obstacle = cannot_compare(original, repeat, options.tolerance);
  if (!result.obstacle.empty()) {
    return result;
  }
  for (size_t i = options.repeat ? 2 : 1; i < runs.all.size(); ++i) {
    result.verdicts.push_back(
        judge(original, repeat, runs.all[i], options.tolerance));
  }
  if (options.repeat) {
    ask_for_rounding(options, installation, runs, repeat, result.verdicts);
  }
  result.outcome = Outcome::kEqual;
  for (const auto& verdict : result.verdicts) {
    result.outcome = std::max(result.outcome, verdict.outcome);
  }
  return result;
}

void print(const Result& result) {
  if (!result.obstacle.empty()) {
    std::cout << "NOT COMPARED  " << result.obstacle << std::endl;
    return;
  }
  if (!result.note.empty()) {
    std::cout << "Note: " << result.note << "\n";
  }
  for (const auto& verdict : result.verdicts) {
    if (verdict.trace) {
      std::cout << "Allowed difference in " << to_string(verdict.trace->dtype)
                << ", relative: " << verdict.trace->tolerance.describe()
                << "\n";
      break;
    }
  }
  for (const auto& verdict : result.verdicts) {
    const char* word = verdict.outcome == Outcome::kEqual ? "equal"
        : verdict.outcome == Outcome::kDifferent          ? "DIFFERENT"
                                                          : "NOT COMPARED";
    std::string line = verdict.way;
    line.resize(std::max<size_t>(line.size() + 2, 14), ' ');
    std::cout << line << word << "  " << summary(verdict) << "\n";
    if (!verdict.cause.text.empty()) {
      std::cout << "    likely cause: " << verdict.cause.text << "\n";
    }
    if (!verdict.cause.anchor.empty()) {
      std::cout << "    see docs/verify.md#" << verdict.cause.anchor << "\n";
    }
    for (const auto& note : verdict.notes) {
      std::cout << "    note: " << note << "\n";
    }
  }
  std::cout.flush();
}

} // namespace accel::verify
