#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace accel::launcher {

/// How one process ended.
struct Ending {
  int rank;
  pid_t pid;
  /// As waitid reports it: CLD_EXITED, CLD_KILLED or CLD_DUMPED, and the exit
  /// code or the signal.
  int code;
  int status;
  /// Seconds after the start of the launch.
  double seconds;
  /// It ended after the launcher, or the user through it, had asked it to.
  bool asked;

  bool failed() const;

  /// As a shell counts: 128 + signal.
  int exit_code() const;

  /// "exit code 7" or "ended by SIGSEGV (Segmentation fault)".
  std::string describe() const;
};

/// The text for standard error when `endings[first]` failed first: which
/// process, how, its last lines on standard error, and what became of the
/// others. `endings` has the processes by rank.
std::string summarize_failure(
    const std::vector<Ending>& endings,
    size_t first,
    const std::vector<std::string>& last_errors);

} // namespace accel::launcher
