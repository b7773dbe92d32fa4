#include "run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "error.h"
#include "installation.h"
#include "read_file.h"

namespace accel::verify {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// What an outer launch may have left behind.
const std::set<std::string> kRemoved = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "ACCEL_RESUME",
    kTraceDirectory,
    kTraceDouble,
    kTraceSeed,
    kTraceTime,
    kTraceNoise,
    kTraceMaxSteps};

/// Instructions that every x86-64 processor has, in LibTorch's own kernels, in
/// MKL's and in oneDNN's.
const std::map<std::string, std::string> kOtherInstructions = {
    {"ATEN_CPU_CAPABILITY", "default"},
    {"MKL_CBWR", "COMPATIBLE"},
    {"ONEDNN_MAX_CPU_ISA", "SSE41"}};

/// Where a run's placement report goes: runs would write over each other's file.
std::string report_of(const RunPlan& plan, const std::string& report) {
  const fs::path file(report);
  if (!file.has_extension()) {
    return report; // 1
  }
  return (file.parent_path() / file.stem()).string() + "." +
      (plan.launch.empty() ? std::to_string(plan.processes)
                           : plan.directory.filename().string()) +
      file.extension().string();
}

std::vector<std::string> environment_for(
    const RunPlan& plan,
    const Installation& installation,
    const fs::path& traces) {
  std::vector<std::string> result;
  std::string preload = installation.trace_library;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (name == "LD_PRELOAD") {
      preload += ":" + text.substr(name.size() + 1);
    } else if (name == "ACCEL_PLACEMENT_REPORT") {
      result.push_back(name + "=" + report_of(plan, text.substr(name.size() + 1)));
    } else if (
        kRemoved.count(name) == 0 &&
        !(plan.other_instructions && kOtherInstructions.count(name) != 0)) {
      result.push_back(text);
    }
  }
  const auto set = [&](const char* name, const std::string& value) {
    result.push_back(std::string(name) + "=" + value);
  };
  set("LD_PRELOAD", preload);
  set(kTraceDirectory, traces.string());
  set(kTraceSeed, std::to_string(plan.seed));
  set(kTraceTime, std::to_string(plan.begin));
  if (plan.widening != Widening::kNone) {
    set(kTraceDouble,
        plan.widening == Widening::kAll           ? kTraceDoubleAll
            : plan.widening == Widening::kModules ? kTraceDoubleModules
                                                  : kTraceDoubleDefault);
  }
  if (plan.other_instructions) {
    for (const auto& [name, value] : kOtherInstructions) {
      set(name.c_str(), value);
    }
    set(kTraceNoise, "1");
  }
  if (plan.max_steps != 0) {
    set(kTraceMaxSteps, std::to_string(plan.max_steps));
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

/// What a run printed; its program's own path, which is another in each run, is
/// called the same.
std::string read_output(const fs::path& path, const std::string& program) {
  std::string text = read_file(path);
  for (size_t at = 0; (at = text.find(program, at)) != std::string::npos;) {
    text.replace(at, program.size(), "PROGRAM");
  }
  return text;
}

/// Starts the command in a process group of its own.
pid_t start(
    std::vector<std::string> command,
    std::vector<std::string> environment,
    const fs::path& directory,
    const fs::path& output,
    const fs::path& errors) {
  const auto arguments = pointers(command);
  const auto variables = pointers(environment);
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  }
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int in = ::open("/dev/null", O_RDONLY);
    const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int err = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (::chdir(directory.c_str()) == 0 && in >= 0 && out >= 0 && err >= 0) {
      ::dup2(in, 0);
      ::dup2(out, 1);
      ::dup2(err, 2);
      ::execve(arguments[0], arguments.data(), variables.data());
    }
    ::_exit(127);
  }
  ::setpgid(pid, pid);
  return pid;
}

/// Waits for the process; ends it where it runs too long. Sets what is known
/// then.
void wait_for(pid_t pid, const RunPlan& plan, Run& run) {
  const auto begin = Clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  int status = 0;
  auto pause = std::chrono::milliseconds(2);
  double asked = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (plan.timeout > 0 && seconds() > plan.timeout && !run.timed_out) {
      run.timed_out = true;
      asked = seconds();
      ::kill(-pid, SIGTERM);
    } else if (run.timed_out && seconds() > asked + 5) {
      ::kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
  ::kill(-pid, SIGKILL); // what it may have left behind
  run.seconds = seconds();
  run.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

Installation find_installation() {
  const fs::path self = launcher::own_executable();
  const fs::path folder = launcher::library_folder(self);
  const fs::path library = folder / "libaccel_trace.so";
  // The second one is loaded by the first.
  for (const std::string target : {"accel_trace", "accel_trace_torch"}) {
    const fs::path part = folder / ("lib" + target + ".so");
    if (!fs::exists(part)) {
      throw launcher::Error(
          launcher::kUsage, launcher::missing(self, part, target));
    }
  }
  if (library.string().find_first_of(" :") != std::string::npos) {
    throw launcher::Error(
        launcher::kUsage,
        library.string() +
            " cannot be preloaded, since LD_PRELOAD allows no blanks and "
            "colons in a path. Install accel elsewhere");
  }
  return {self.string(), library.string()};
}

Run run(const RunPlan& plan, const Installation& installation) {
  const fs::path traces = plan.directory / "trace";
  const fs::path printed = plan.directory / "output";
  fs::create_directories(traces);
  fs::create_directories(printed);
  Workplace workplace(plan.source, plan.directory / "around");
  // Easier to find.
  fs::create_directory_symlink(
      workplace.directory(), plan.directory / "work");

  std::vector<std::string> command = plan.program;
  if (plan.processes > 0) {
    std::vector<std::string> launch = {
        installation.accel,
        "launch",
        // What the user has configured for other launches would be one more
        // difference from the original.
        "--config-file",
        "/dev/null",
        "--output",
        printed.string() + "/"};
    if (plan.launch.empty()) {
      launch.insert(
          launch.end(), {"--num-processes", std::to_string(plan.processes)});
    }
    launch.insert(launch.end(), plan.launch.begin(), plan.launch.end());
    launch.push_back("--");
    command.insert(command.begin(), launch.begin(), launch.end());
  }
  Run result;
  result.name = plan.name;
  result.processes = plan.processes;
  result.way = plan.way;
  const pid_t pid =
      start(
          command,
          environment_for(plan, installation, traces),
          workplace.directory(),
          printed / "stdout.log",
          printed / "stderr.log");
  wait_for(pid, plan, result);

  const int ranks = std::max(1, plan.processes);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string base = "rank-" + std::to_string(rank);
    const fs::path trace = traces / (base + ".trace");
    result.traces.push_back(
        fs::exists(trace) ? std::optional<Trace>(read_trace(trace.string()))
                          : std::nullopt);
    const std::string prefix = plan.processes > 0 ? base + "." : "";
    const std::string& program = plan.program.at(0);
    result.output.push_back(
        read_output(printed / (prefix + "stdout.log"), program));
    result.errors.push_back(
        read_output(printed / (prefix + "stderr.log"), program));
  }
  if (plan.processes > 0) {
    result.errors.push_back(read_file(printed / "stderr.log")); // the launcher's
  }
  result.written = workplace.written();
  result.work_directory = workplace.directory();
  result.tensors = traces / "rank-0.safetensors";
  result.damaged = workplace.damaged();
  return result;
}

} // namespace accel::verify
