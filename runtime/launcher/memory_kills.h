#pragma once

#include <cstdint>
#include <string>

namespace accel::launcher {

/// Tells whether the kernel has killed processes because memory ran out. It
/// does that with SIGKILL, which says nothing; but it counts what it did, for
/// each group of processes with a limit (cgroup: a container, a Slurm step, a
/// systemd unit) and for the machine.
class MemoryKills {
 public:
  /// Counts from now on. Our processes are in the cgroup in which we are.
  /// `root` is put before the paths of files: for tests.
  explicit MemoryKills(std::string root = "");

  /// For a process that SIGKILL has ended, and nobody here has sent it: what
  /// the kernel says, for people. Empty where it has not killed anybody for
  /// lack of memory, or where each such kill was returned before.
  std::string explain();

 private:
  int64_t group_kills() const;
  int64_t machine_kills() const;
  std::string limit() const;

  std::string root_;
  /// Folders of the memory controller: our cgroup's, and the topmost one that
  /// can be seen. Empty where there are none.
  std::string group_;
  std::string top_;
  /// Kills that were counted before we began or that were explained.
  int64_t group_known_ = 0;
  int64_t machine_known_ = 0;
};

} // namespace accel::launcher
