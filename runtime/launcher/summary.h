#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace accel::launcher {

/// How one process ended.
struct Ending {
  /// The process was on another host, of which nobody knows anything any more.
  static constexpr int kLost = -1;

  int rank = 0;
  pid_t pid = 0;
  /// As waitid reports it: CLD_EXITED, CLD_KILLED or CLD_DUMPED, and the exit
  /// code or the signal; or kLost.
  int code = 0;
  int status = 0;
  /// Seconds after the start of the launch.
  double seconds = 0;
  /// It ended after the launcher, or the user through it, had asked it to.
  bool asked = false;
  /// How many processes had ended before it.
  int order = 0;
  /// What it wrote on its `Note`: it only follows another one that is gone.
  std::string note;
  /// The host's name, where there are several.
  std::string host;
  /// The last lines on standard error that are worth repeating; for kLost why
  /// the host is lost.
  std::vector<std::string> last_errors;
  /// Why it was the kernel that has killed it, as far as that is known
  /// (`MemoryKills`).
  std::string memory;

  /// For a process that has just been started.
  static Ending of_running(int rank, pid_t pid, std::string host = "") {
    Ending ending;
    ending.rank = rank;
    ending.pid = pid;
    ending.host = std::move(host);
    return ending;
  }

  bool failed() const;

  /// As a shell counts: 128 + signal.
  int exit_code() const;

  /// "exit code 7", "ended by SIGSEGV (Segmentation fault)", "ended by SIGKILL
  /// (Killed), probably out of memory" or "lost with its host".
  std::string describe() const;
};

/// The last ten of `lines` that say something, without the stack frames that
/// LibTorch's exceptions print.
std::vector<std::string> telling_lines(const std::vector<std::string>& lines);

/// The process to blame, which ended by itself and first among those that did
/// not say that they only follow another one; where all did say so, or all
/// were asked to end, the first of them. Null when none has failed.
const Ending* find_cause(const std::vector<Ending>& endings);

/// The text for standard error: which process failed first, how, its last
/// lines on standard error, and what became of the others. `endings` has the
/// processes by rank, `cause` is one of them.
std::string summarize_failure(
    const std::vector<Ending>& endings, const Ending& cause);

} // namespace accel::launcher
