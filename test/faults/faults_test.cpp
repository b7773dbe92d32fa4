// Faults that happen to a program that uses the runtime, under the launcher.

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>

#include "build_paths.h"
#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

void expect_no_part(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << part << " in:\n" << text;
}

Surroundings in(const Folder& folder) {
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  surroundings.environment = {
      {"OMP_NUM_THREADS", "1"},
      {"ACCEL_RESUME", ""},
      {"ACCEL_STALL_TIMEOUT", "2"}};
  return surroundings;
}

Strings launch(const Strings& options, const Strings& arguments) {
  Strings all{"launch", "-n", "2"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"--", build_paths::kFaultsSubject});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Strings command(Strings arguments) {
  arguments.insert(arguments.begin(), accel_path());
  return arguments;
}

/// A shell that does `before` and becomes the program.
Strings in_shell(const std::string& before, const Strings& words) {
  std::string script = before + " exec";
  for (const std::string& word : words) {
    script += " '" + word + "'";
  }
  return {"/bin/sh", "-c", script};
}

/// What the job prints that nothing happens to.
const std::string& undisturbed() {
  static const std::string output = [] {
    const Folder folder;
    const Result result =
        accel(launch({"--output", "main"}, {"train"}), in(folder));
    EXPECT_EQ(result.status, 0) << result.err;
    expect_part(result.out, "after 300 steps: 0x");
    return result.out;
  }();
  return output;
}

size_t lines_in(const Folder& folder, const std::string& name) {
  return folder.has(name) ? split_lines(folder.read(name)).size() : 0;
}

TEST(Faults, TwentyKillsChangeNotABit) {
  const Folder folder;
  Running running(
      command(launch(
          {"--output", "main", "--max-restarts", "60", "--resume", "auto"},
          {"kill", "20"})),
      in(folder));
  const Result result = running.wait(150);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, undisturbed());
  EXPECT_GE(lines_in(folder, "kills"), 20u);
  // It saves after every step: at most the one that was under way is lost.
  int starts = 0;
  int step = 0;
  for (const std::string& line : split_lines(folder.read("log"))) {
    const int number = std::stoi(line.substr(line.find(' ')));
    if (line.rfind("start", 0) == 0) {
      EXPECT_GE(number, step - 1);
      EXPECT_LE(number, step);
      ++starts;
    }
    step = number;
  }
  EXPECT_GT(starts, 5);
  EXPECT_EQ(step, 300);
  std::cout << lines_in(folder, "kills") << " kills, " << starts
            << " starts that came to train, " << result.seconds << " s\n";
}

class KillsInParts : public testing::TestWithParam<const char*> {};

/// Processes are killed while the others gather a weight of 4 MB from them, or
/// scatter its gradient: nobody hangs, and the numbers are those without kills.
TEST_P(KillsInParts, ChangeNotABit) {
  const auto with_parts = [](const Folder& folder) {
    Surroundings surroundings = in(folder);
    surroundings.environment["ACCELERATE_USE_FSDP"] = "true";
    surroundings.environment["FSDP_SHARDING_STRATEGY"] = GetParam();
    surroundings.environment["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT";
    surroundings.environment["FAULTS_WIDTH"] = "1024";
    surroundings.environment["FAULTS_EVERY"] = "8";
    return surroundings;
  };
  const Folder other;
  const Result whole = accel(
      launch({"--output", "main"}, {"train", "120"}), with_parts(other));
  EXPECT_EQ(whole.status, 0) << whole.err;
  expect_part(whole.out, "after 120 steps: 0x");
  const Folder folder;
  Running running(
      command(launch(
          {"--output", "main", "--max-restarts", "60", "--resume", "auto"},
          {"kill", "12", "120"})),
      with_parts(folder));
  const Result result = running.wait(150);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, whole.out);
  EXPECT_GE(lines_in(folder, "kills"), 12u);
  std::cout << lines_in(folder, "kills") << " kills, " << result.seconds << " s\n";
}

INSTANTIATE_TEST_SUITE_P(
    Strategies,
    KillsInParts,
    testing::Values("FULL_SHARD"),
    [](const auto& info) { return std::string(info.param); });

class StopSignal : public testing::TestWithParam<int> {};

TEST_P(StopSignal, SavesAndGoesOn) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  const Folder other;
  const Result whole =
      accel(launch({"--output", "main"}, {"stop"}), in(other));
  Running running(
      command(launch(
          {"--output", "main", "--resume", "auto", "--max-restarts", "3"},
          {"stop"})),
      surroundings);
  ASSERT_TRUE(eventually([&] { return folder.has("begun"); }, 30));
  running.signal(GetParam());
  const Result result = running.wait();
  EXPECT_EQ(result.status, 75) << result.err;
  EXPECT_EQ(result.out, "");
  expect_part(result.err, "after saving (exit code 75)");
  expect_no_part(result.err, "starting all processes again");
  const Result rest = accel(
      launch({"--output", "main", "--resume", "auto"}, {"stop"}), surroundings);
  EXPECT_EQ(rest.status, 0) << rest.err;
  expect_part(rest.out, "after 40 steps: 0x");
  EXPECT_EQ(rest.out, whole.out);
}

INSTANTIATE_TEST_SUITE_P(
    Signals,
    StopSignal,
    testing::Values(SIGTERM, SIGUSR1),
    [](const auto& info) { return sigabbrev_np(info.param); });

TEST(Faults, DamagedCheckpointsArePassedOver) {
  const Folder folder;
  // It saves after every step, and nobody is killed any more.
  std::ofstream(folder / "kills") << "x\n";
  const Strings arguments =
      launch({"--output", "main", "--resume", "auto"}, {"kill", "1", "10"});
  const Result whole = accel(arguments, in(folder));
  EXPECT_EQ(whole.status, 0) << whole.err;
  expect_part(whole.out, "after 10 steps: 0x");
  // Step 10 is checkpoint 9; two are kept.
  const std::string name = "run/checkpoints/checkpoint_9/model.safetensors";
  std::string bytes = folder.read(name);
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  std::ofstream(folder / name, std::ios::binary) << bytes;
  const Result result = accel(arguments, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.err, "checkpoint_9' is damaged; going on at '");
  expect_part(result.err, "checkpoint_8'");
  const Strings log = split_lines(folder.read("log"));
  ASSERT_GE(log.size(), 2u);
  EXPECT_EQ(log[log.size() - 2], "start 9");
  EXPECT_EQ(log.back(), "step 10");
  EXPECT_EQ(result.out, whole.out);
}

TEST(Faults, SavingWithoutResumingIsRefused) {
  const Folder folder;
  const Result refused =
      accel(launch({"--resume", "auto"}, {"no-resume"}), in(folder));
  EXPECT_NE(refused.status, 0);
  expect_part(refused.err, "save_state was called before accelerator.resume()");
  EXPECT_EQ(accel(launch({}, {"no-resume"}), in(folder)).status, 0);
}

TEST(OutOfStep, NamesOperationPlaceAndNumberOfEveryProcess) {
  const Folder folder;
  const Result result = accel(launch({}, {"main-only"}), in(folder));
  EXPECT_NE(result.status, 0);
  EXPECT_LT(result.seconds, 15);
  expect_part(result.err, "the processes are out of step");
  expect_part(result.err, "in barrier #");
  expect_part(result.err, "called at subject.cpp:");
  expect_part(result.err, "enter_barrier");
  expect_part(result.err, "process 1 has waited");
}

TEST(OutOfStep, ProcessesThatHaveEndedAreNotWaitedFor) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  // Far longer than it takes: nobody is slow, one is gone.
  surroundings.environment["ACCEL_STALL_TIMEOUT"] = "60";
  const Result result = accel(launch({}, {"fewer-batches"}), surroundings);
  EXPECT_NE(result.status, 0);
  EXPECT_LT(result.seconds, 15);
  expect_part(result.err, "the processes are out of step");
  expect_part(result.err, "process 1 has ended; its last operation: ");
  expect_part(result.err, "(add)");
}

TEST(OutOfStep, DifferentShapesAreNamed) {
  const Folder folder;
  const Result result = accel(launch({}, {"shapes"}), in(folder));
  EXPECT_NE(result.status, 0);
  EXPECT_LT(result.seconds, 10);
  // Both say it, and nobody waits for a timeout.
  for (const char* part :
       {"reduce was called with a tensor Float[2] on process 0 but "
        "Float[300000] on process 1",
        "reduce was called with a tensor Float[300000] on process 1 but "
        "Float[2] on process 0"}) {
    expect_part(result.err, part);
  }
}

TEST(PlacementReport, SaysWhatRanWholeAndWhere) {
  const Folder folder;
  const Result result = accel(
      launch({"--placement-report"}, {"shared-out"}), in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.err, "accel: placement report of process 0 of 2");
  expect_part(result.err, "% of the operators' time was shared out, ");
  // Its lines: milliseconds, calls, bytes, the operator and its place.
  const auto line = [&](const std::string& of) {
    const auto lines = split_lines(result.err);
    const auto found =
        std::find_if(lines.begin(), lines.end(), [&](const std::string& one) {
          return one.find("aten::" + of) != std::string::npos;
        });
    EXPECT_NE(found, lines.end()) << of << " in:\n" << result.err;
    return found == lines.end() ? std::string() : *found;
  };
  double milliseconds = 0;
  int calls = 0;
  const auto inverse = line("linalg_inv_ex");
  EXPECT_EQ(
      std::sscanf(inverse.c_str(), "%lf %d", &milliseconds, &calls), 2)
      << inverse;
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(calls, 5);
  // 4 rows of 8 floats of each of two processes, five times: 1280 bytes.
  expect_part(inverse, " 1.2 KiB ");
  expect_part(inverse, " subject.cpp:");
  expect_part(inverse, "(invert)");
  // Process 1 has nothing to say.
  expect_no_part(result.err, "process 1");
  // And the training is the same as without.
  EXPECT_EQ(accel(launch({}, {"shared-out"}), in(folder)).err, "");
}

// What a data set and an optimizer do is no work on a batch.
TEST(PlacementReport, CountsDataSetsAndOptimizersApart) {
  const Folder folder;
  auto surroundings = in(folder);
  surroundings.environment["ACCEL_PLACEMENT_REPORT"] = "report.json";
  const Result result = accel(launch({}, {"loaded"}), surroundings);
  EXPECT_EQ(result.status, 0) << result.err;
  const auto report = folder.read("report.json");
  expect_part(report, "\"rows\": 16");
  const auto of = [&](const std::string& way) {
    const auto begin = report.find("\"" + way + "\": [");
    EXPECT_NE(begin, std::string::npos) << way;
    return report.substr(begin, report.find("\n  ]", begin) - begin);
  };
  expect_part(of("loading"), "aten::pow");
  expect_part(of("updating"), "aten::addcdiv_");
  // What the reducer does is not counted.
  expect_no_part(of("plain"), "aten::narrow");
  for (const char* way : {"plain", "in_parts"}) {
    expect_no_part(of(way), "aten::pow");
    expect_no_part(of(way), "aten::addcdiv_");
  }
  expect_part(of("in_parts"), "aten::mse_loss");
}

TEST(PlacementReport, SaysThatNothingWasDistributed) {
  const Folder folder;
  const Result result = accel(
      launch({"--placement-report"}, {"shared-out", "not"}), in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(
      result.err,
      "placement report: no operator was given a distributed tensor");
  expect_part(result.err, "accelerator.distribute(tensor)");
}

// A program as it is shipped: functions and offsets, and what to do.
TEST(PlacementReport, NamesFunctionsWithoutDebugInformation) {
  const Folder folder;
  const std::string stripped = folder / "train";
  const Result made =
      Running({ACCEL_OBJCOPY, "--strip-debug", build_paths::kFaultsSubject, stripped})
          .wait();
  ASSERT_EQ(made.status, 0) << made.err;
  Strings arguments{"launch", "-n", "2", "--placement-report", "--", stripped,
                    "shared-out"};
  const Result result = accel(arguments, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.err, "invert in " + stripped + " (0x");
  expect_part(result.err, "compile the program with -g");
  expect_no_part(result.err, "subject.cpp:");
}

TEST(OutOfStep, SlowProcessesAreNamedAndWaitedFor) {
  const Folder folder;
  const Result result = accel(
      launch({"--output", "main"}, {"slow", "5"}), in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "sum 8\n");
  expect_part(result.err, "process 0 is waiting for others");
  expect_part(result.err, "process 1 computes, or waits for something else");
  expect_no_part(result.err, "out of step");
}

/// Where somebody listens at `port`, as /proc/net/tcp and tcp6 have it.
Strings listeners(int port) {
  Strings result;
  char wanted[8];
  std::snprintf(wanted, sizeof wanted, ":%04X", port);
  for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const size_t colon = local.find(':');
      if (state == "0A" && colon != std::string::npos &&
          local.substr(colon) == wanted) {
        result.push_back(local.substr(0, colon));
      }
    }
  }
  return result;
}

// ---- A process ends while the others wait for it.

/// The names in /dev/shm, but for the folders of tests of checkpoints that may
/// run now.
std::set<std::string> shared_memory_now() {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator("/dev/shm", none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("accel-ckpt-", 0) != 0) {
      names.insert(name);
    }
  }
  return names;
}

struct Death {
  const char* how;
  int status;
  const char* said;
};

void PrintTo(const Death& death, std::ostream* out) {
  *out << death.how;
}

class Deaths : public testing::TestWithParam<Death> {};

TEST_P(Deaths, AreNoticedAndNamedAndLeaveNothingBehind) {
  const Folder folder;
  const auto shared_memory = shared_memory_now();
  const Result result =
      accel(launch({}, {"die", GetParam().how}), in(folder));
  const auto now = std::chrono::duration<double>(
      std::chrono::system_clock::now().time_since_epoch());
  EXPECT_LT(now.count() - std::stod(folder.read("died")), 2);
  EXPECT_EQ(result.status, GetParam().status) << result.err;
  // What the launcher says …
  expect_part(result.err, "rank 1 (pid ");
  expect_part(
      result.err, std::string("failed first: ") + GetParam().said);
  expect_part(
      result.err,
      "could not go on without the others: rank 0 (ended by SIGABRT (Aborted), "
      "in all_gather #");
  // … and what the process says that has waited, and where.
  expect_part(result.err, " failed on process 0 of 2, called at subject.cpp:");
  expect_part(result.err, std::string(": rank 1: ") + GetParam().said);

  EXPECT_EQ(shared_memory_now(), shared_memory);
  EXPECT_EQ(listeners(std::stoi(folder.read("port"))), Strings());
  for (const std::string& pid : split_lines(folder.read("pids"))) {
    EXPECT_EQ(process_state(std::stoi(pid)), 0) << pid;
  }
  EXPECT_EQ(lines_in(folder, "pids"), 2u);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Deaths,
    testing::Values(
        Death{"kill", 137, "ended by SIGKILL (Killed)"},
        Death{"segv", 139, "ended by SIGSEGV (Segmentation fault)"},
        Death{"exit", 7, "exit code 7"},
        Death{"throw", 134, "ended by SIGABRT (Aborted)"},
        Death{"memory", 134, "ended by SIGABRT (Aborted)"}),
    [](const auto& info) { return info.param.how; });

TEST(DeathByException, TellsTheOthersItsMessage) {
  const Folder folder;
  const Result result = accel(launch({}, {"die", "throw"}), in(folder));
  expect_part(
      result.err,
      ": rank 1: ended by SIGABRT (Aborted):   what():  the data set is on fire");
}

/// A cgroup below our own with a limit of memory; it is gone with this.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes) {
    // Version 1: "4:memory:/ours"; version 2: "0::/ours".
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::string path = line.substr(line.rfind(':') + 1);
      if (line.find(":memory:") != std::string::npos) {
        make("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes", bytes);
      } else if (line.rfind("0::", 0) == 0) {
        make("/sys/fs/cgroup" + path, "memory.max", bytes);
      }
    }
  }

  ~MemoryLimit() {
    if (!folder_.empty()) {
      // What was killed may take a moment to go.
      EXPECT_TRUE(eventually([&] { return rmdir(folder_.c_str()) == 0; }));
    }
  }

  /// Empty where none could be made.
  const std::string& folder() const {
    return folder_;
  }

  /// Puts the shell that does it into the group.
  std::string enter() const {
    return "echo $$ > '" + folder_ + "/cgroup.procs' &&";
  }

 private:
  void make(const std::string& parent, const char* limit, int64_t bytes) {
    const std::string folder =
        parent + "/accel-test-" + std::to_string(getpid());
    if (!folder_.empty() || mkdir(folder.c_str(), 0755) != 0) {
      return;
    }
    // Not there: the controller is off, or nobody may make it.
    std::ofstream file;
    if (std::filesystem::exists(folder + "/" + limit)) {
      file.open(folder + "/" + limit);
    }
    file << bytes << std::endl;
    if (file.good()) {
      folder_ = folder;
      return;
    }
    rmdir(folder.c_str());
  }

  std::string folder_;
};

/// 96 layers of 4 MiB have 1.5 GiB of parameters, gradients and Adam's states: three
/// times what each process may use.
TEST(OutOfMemory, DoesNotComeWhereStatesAreDividedOrInFiles) {
  constexpr int64_t kOfEach = 512 << 20;
  struct Run {
    int processes;
    bool files;
  };
  std::map<int, std::vector<double>> losses;
  for (const Run run : {Run{4, false}, Run{2, true}, Run{2, false}}) {
    const MemoryLimit limit(run.processes * kOfEach);
    if (limit.folder().empty()) {
      GTEST_SKIP() << "no cgroup with a memory limit can be made here";
    }
    const Folder folder;
    Surroundings surroundings = in(folder);
    surroundings.environment["MALLOC_MMAP_THRESHOLD_"] = "65536";
    Strings words{
        accel_path(), "launch", "-n", std::to_string(run.processes), "--output",
        "main", "--use-deepspeed", "--zero-stage", "3", "--zero3-init-flag", "true"};
    if (run.files) {
      for (const char* what : {"optimizer", "param"}) {
        words.insert(
            words.end(),
            {std::string("--offload-") + what + "-device", "nvme",
             std::string("--offload-") + what + "-nvme-path", folder.path()});
      }
    }
    words.insert(words.end(), {"--", build_paths::kFaultsSubject, "large", "96"});
    const Result result =
        Running(in_shell(limit.enter(), words), surroundings).wait(200);
    if (run.processes == 2 && !run.files) {
      EXPECT_EQ(result.status, 137) << "it fits: the test shows nothing";
      continue;
    }
    EXPECT_EQ(result.status, 0) << run.processes << ": " << result.err;
    const auto lines = split_lines(result.out);
    ASSERT_EQ(lines.size(), 2u) << result.out;
    for (const auto& line : lines) {
      losses[run.processes].push_back(std::stod(line));
    }
    std::cout << run.processes << (run.files ? " with files: " : ": ")
              << result.seconds << " s\n" << result.out;
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(losses[2][i], losses[4][i], 1e-4 * losses[4][i]);
  }
  EXPECT_LT(losses[4][1], 0.9 * losses[4][0]) << "nothing was trained";
}

TEST(OutOfMemory, IsNamedWhereTheKernelKills) {
  constexpr int64_t kMiB = 1 << 20;
  const MemoryLimit limit(512 * kMiB);
  if (limit.folder().empty()) {
    GTEST_SKIP() << "no cgroup with a memory limit can be made here";
  }
  const Folder folder;
  // The launcher is in it, and so is all that it starts.
  const Result result =
      Running(in_shell(limit.enter(), command(launch({}, {"die", "oom"}))), in(folder))
          .wait();
  EXPECT_EQ(result.status, 137) << result.err;
  expect_part(
      result.err,
      "failed first: ended by SIGKILL (Killed), probably out of memory, ");
  expect_part(result.err, "together they may use 512 MiB.");
  expect_no_part(result.err, "somebody killed it");
  // The other one knows it, too, and where it has waited for it.
  expect_part(result.err, " failed on process 0 of 2, called at subject.cpp:");
  expect_part(
      result.err,
      ": rank 1: ended by SIGKILL (Killed), probably out of memory");
}

// ---- Fewer processes.

/// The two numbers behind "after N steps: ".
std::pair<double, double> numbers(const std::string& text, int steps) {
  std::pair<double, double> result;
  const std::string format =
      "after " + std::to_string(steps) + " steps: %la %la";
  EXPECT_EQ(
      std::sscanf(
          text.c_str(), format.c_str(), &result.first, &result.second),
      2)
      << text;
  return result;
}

TEST(Elastic, GoesOnWithoutTheProcessThatKeepsDying) {
  const Folder folder;
  const Result result = accel(
      {"launch", "-n", "3", "--output", "main", "--max-restarts", "5",
       "--min-processes", "2", "--resume", "auto", "--match-single-device",
       "--", build_paths::kFaultsSubject, "doomed", "8"},
      in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(
      result.err,
      "starting 2 processes instead of 3, since rank 2 has failed first twice "
      "in a row and --min-processes 2 allows it (restart 2 of at most 5, from "
      "the newest complete checkpoint)");
  expect_part(
      result.err,
      "What changes with 2 processes instead of 3: a global batch is what it "
      "was, shared by fewer, so that the results are the same but for the last "
      "bits");
  // It says the truth: nobody has died, and there is one process.
  const Folder other;
  const Result alone = accel(
      {"launch", "--output", "main", "--", build_paths::kFaultsSubject, "train", "8"},
      in(other));
  const auto found = numbers(result.out, 8);
  const auto expected = numbers(alone.out, 8);
  EXPECT_NEAR(found.first, expected.first, 1e-5 * std::abs(expected.first));
  EXPECT_NEAR(found.second, expected.second, 1e-5 * std::abs(expected.second));
  // It went on, and did not begin anew.
  Strings starts;
  for (const std::string& line : split_lines(folder.read("log"))) {
    if (line.rfind("start ", 0) == 0) {
      starts.push_back(line);
    }
  }
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_NE(starts[1], "start 0");
  EXPECT_NE(starts[2], starts[1]);
}

// ---- The disk.

TEST(Disk, ThatIsFullIsAnErrorAndLosesNothing) {
  const Folder folder;
  const Folder other;
  const Strings whole =
      launch({"--output", "main", "--resume", "auto"}, {"saving", "8"});
  const Result undisturbed = accel(whole, in(other));
  EXPECT_EQ(
      accel(
          launch({"--output", "main", "--resume", "auto"}, {"saving", "4"}),
          in(folder))
          .status,
      0);
  // No file may be longer than a kilobyte, and nobody is killed for trying.
  Running running(
      in_shell("trap '' XFSZ; ulimit -f 2;", command(whole)), in(folder));
  const Result full = running.wait();
  EXPECT_NE(full.status, 0);
  EXPECT_GT(full.status, 0) << "a signal";
  expect_part(full.err, "File too large");
  expect_part(full.err, "run/checkpoints/");
  const Result rest = accel(whole, in(folder));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.out, undisturbed.out);
  const Strings log = split_lines(folder.read("log"));
  EXPECT_EQ(log.back(), "start 4");
}

// ---- Without a launcher of ours.

using Variables = std::map<std::string, std::string>;

/// Starts the program `processes` times in what a batch system's launcher says;
/// "%" in a value is the rank.
std::vector<Result> start_directly(
    int processes, const Variables& variables, const Strings& arguments) {
  const Folder folder;
  std::vector<std::unique_ptr<Running>> running;
  for (int rank = 0; rank < processes; ++rank) {
    Surroundings surroundings = in(folder);
    for (auto [name, value] : variables) {
      const size_t at = value.find('%');
      if (at != std::string::npos) {
        value.replace(at, 1, std::to_string(rank));
      }
      surroundings.environment[name] = value;
    }
    Strings all{build_paths::kFaultsSubject};
    all.insert(all.end(), arguments.begin(), arguments.end());
    running.push_back(std::make_unique<Running>(all, surroundings));
  }
  std::vector<Result> results;
  for (auto& process : running) {
    results.push_back(process->wait());
  }
  return results;
}

TEST(BatchSystem, ProcessesOfOpenMpiSlurmAndPmiMeet) {
  const std::vector<Variables> systems{
      {{"OMPI_COMM_WORLD_RANK", "%"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "%"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
       {"PMIX_NAMESPACE", "prterun-" + std::to_string(getpid())}},
      {{"SLURM_PROCID", "%"},
       {"SLURM_NTASKS", "2"},
       {"SLURM_STEP_NUM_TASKS", "2"},
       {"SLURM_STEP_TASKS_PER_NODE", "2"},
       {"SLURM_NODEID", "0"},
       {"SLURM_LOCALID", "%"},
       {"SLURM_STEP_NODELIST", "node[03,07]"},
       {"SLURM_JOB_ID", std::to_string(getpid())}},
      {{"PMI_RANK", "%"},
       {"PMI_SIZE", "2"},
       {"MPI_LOCALRANKID", "%"},
       {"MPI_LOCALNRANKS", "2"},
       {"MASTER_PORT", std::to_string(20000 + getpid() % 10000)}}};
  for (const Variables& variables : systems) {
    const auto results = start_directly(2, variables, {"slow", "0"});
    EXPECT_EQ(results[0].status, 0) << results[0].err;
    EXPECT_EQ(results[1].status, 0) << results[1].err;
    EXPECT_EQ(results[0].out, "sum 8\n");
    EXPECT_EQ(results[1].out, "");
  }
}

TEST(Torchrun, ProcessesMeetAtItsAgentsStore) {
  const Folder folder;
  Running agent({build_paths::kFaultsSubject, "agent"}, in(folder));
  // The file is made before anything is in it.
  ASSERT_TRUE(eventually(
      [&] {
        return folder.has("port") && folder.read("port").find('\n') != std::string::npos;
      },
      30));
  Variables variables{
      {"RANK", "%"},
      {"LOCAL_RANK", "%"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", split_lines(folder.read("port")).at(0)},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  // The store, and what was written into it, is there after a restart.
  for (const char* restarts : {"0", "1"}) {
    variables["TORCHELASTIC_RESTART_COUNT"] = restarts;
    const auto results = start_directly(2, variables, {"slow", "0"});
    EXPECT_EQ(results[0].status, 0) << results[0].err;
    EXPECT_EQ(results[1].status, 0) << results[1].err;
    EXPECT_EQ(results[0].out, "sum 8\n");
  }
  std::ofstream(folder / "go") << "x";
  EXPECT_EQ(agent.wait().status, 0);
}

TEST(BatchSystem, ABatchScriptItselfIsOneProcess) {
  const auto results = start_directly(
      1,
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}},
      {"slow", "0"});
  EXPECT_EQ(results[0].status, 0) << results[0].err;
  EXPECT_EQ(results[0].out, "sum 4\n");
}

TEST(BatchSystem, WhatIsMissingIsNamed) {
  const auto says = [](const Variables& variables, const std::string& part) {
    const auto results = start_directly(1, variables, {"slow", "0"});
    EXPECT_NE(results[0].status, 0);
    expect_part(results[0].err, part);
  };
  const Variables open_mpi{
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  says(open_mpi, "mpirun -x MASTER_ADDR=$(hostname)");
  Variables slurm{
      {"SLURM_PROCID", "2"},
      {"SLURM_STEP_NUM_TASKS", "5"},
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
      {"SLURM_NODEID", "1"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_STEP_NODELIST", "no-such-host-[007-008,11].invalid,other"},
      {"SLURM_JOB_ID", "1"}};
  says(slurm, "'no-such-host-007.invalid'");
  slurm["SLURM_STEP_TASKS_PER_NODE"] = "2(x";
  says(slurm, "SLURM_STEP_TASKS_PER_NODE is '2(x'");
  slurm["SLURM_STEP_TASKS_PER_NODE"] = "2";
  says(slurm, "does not say how many processes node 1 has");
  slurm.erase("SLURM_NODEID");
  says(slurm, "SLURM_NODEID is not");
}

// ---- Who else may come to the store's port.

TEST(Strangers, AtTheStoresPortDisturbNothing) {
  const Folder folder;
  Running running(
      command(launch({"--output", "main"}, {"meet"})), in(folder));
  ASSERT_TRUE(eventually([&] { return folder.has("met"); }, 30));
  const int port = std::stoi(folder.read("port"));
  // 127.0.0.1 and nothing else, byte order of the machine.
  EXPECT_EQ(listeners(port), Strings{"0100007F"});
  std::mt19937 random(5);
  Strings messages{
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string(1 << 20, '\xff'),
      std::string("\0\0\0\0\0\0\0\0", 8),
      ""};
  for (int i = 0; i < 20; ++i) {
    std::string bytes(1 + random() % 5000, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    messages.push_back(bytes);
  }
  // Old clients: the first byte of a query and nothing behind it.
  for (char query = 0; query < 20; ++query) {
    messages.push_back(std::string(1, query));
  }
  std::vector<int> open;
  for (const std::string& message : messages) {
    const int fd = connect_to(port);
    ASSERT_GE(fd, 0);
    (void)!send(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (open.size() < 5) {
      open.push_back(fd); // Some never go.
    } else {
      close(fd);
    }
  }
  usleep(200000);
  std::ofstream(folder / "go") << "x";
  const Result result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "sum 4\n");
  for (int fd : open) {
    close(fd);
  }
}

TEST(Files, HaveTheModeThatTheUserWants) {
  const Folder folder;
  const mode_t before = umask(027);
  const Result result = accel(
      launch({"--output", "logs/"}, {"no-resume"}), in(folder));
  umask(before);
  EXPECT_EQ(result.status, 0) << result.err;
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder.path())) {
    struct stat status;
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(
        status.st_mode & 07777, entry.is_directory() ? 0750u : 0640u)
        << entry.path();
    ++files;
  }
  EXPECT_GT(files, 6);
}

} // namespace
