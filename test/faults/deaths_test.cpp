// A process ends while the others wait for it; memory that runs out.

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "subject_runs.h"

namespace {

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

} // namespace
