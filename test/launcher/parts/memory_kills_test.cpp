// Whether the kernel has ended a process for want of memory.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "memory_kills.h"

namespace accel::launcher {
namespace {

/// The files that the kernel would show.
class KernelFiles {
 public:
  KernelFiles() {
    std::string name =
        (std::filesystem::temp_directory_path() / "accel-kernel-XXXXXX")
            .string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    write("/proc/vmstat", "nr_free_pages 7\noom_kill 40\nthp_zero 1\n");
  }
  ~KernelFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string& root() const {
    return root_;
  }

 private:
  std::string root_;
};

TEST(MemoryKills, AreCountedInVersionTwo) {
  const KernelFiles files;
  files.write("/proc/self/cgroup", "1:name=systemd:/\n0::/job/step\n");
  files.write(
      "/proc/self/mountinfo",
      "21 1 8:1 / / rw - ext4 /dev/sda rw\n"
      "31 21 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  const std::string group = "/sys/fs/cgroup/job/step";
  const auto events = [&](int kills) {
    // Its name is the end of none and the beginning of another.
    files.write(
        group + "/memory.events",
        "low 0\nmax 9\noom 9\noom_kill " + std::to_string(kills) +
            "\noom_group_kill 9\n");
  };
  events(3);
  files.write(group + "/memory.max", "max\n");
  files.write("/sys/fs/cgroup/job/memory.max", "536870912\n");
  MemoryKills kills(files.root());
  EXPECT_EQ(kills.explain(), ""); // The three are not ours.
  events(5);
  files.write("/proc/vmstat", "oom_kill 42\n");
  // The limit is that of the group above.
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(kills.explain().find("may use 512 MiB."), std::string::npos);
  }
  EXPECT_EQ(kills.explain(), ""); // Two were killed, not three.
}

TEST(MemoryKills, AreCountedInVersionOne) {
  const KernelFiles files;
  files.write("/proc/self/cgroup", "9:cpu:/x\n4:hugetlb,memory:/pod/c\n0::/\n");
  // As in a container: the mount shows the container's own group only.
  files.write(
      "/proc/self/mountinfo",
      "30 24 0:26 /pod /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "31 24 0:27 /pod/c /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  const std::string group = "/sys/fs/cgroup/memory";
  files.write(group + "/memory.limit_in_bytes", "9223372036854771712\n");
  files.write(
      group + "/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  MemoryKills kills(files.root());
  EXPECT_EQ(kills.explain(), "");
  files.write(
      group + "/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  const std::string text = kills.explain();
  EXPECT_NE(text.find("this job's cgroup"), std::string::npos) << text;
  EXPECT_EQ(text.find("MiB"), std::string::npos) << text; // There is no limit.
  EXPECT_EQ(kills.explain(), "");
}

TEST(MemoryKills, AreThoseOfTheMachineWhereThereAreNoGroups) {
  const KernelFiles files;
  MemoryKills kills(files.root());
  EXPECT_EQ(kills.explain(), "");
  files.write("/proc/vmstat", "oom_kill 41\n");
  const std::string text = kills.explain();
  EXPECT_NE(text.find("a process on this machine"), std::string::npos) << text;
  EXPECT_EQ(kills.explain(), "");
}

} // namespace
} // namespace accel::launcher
