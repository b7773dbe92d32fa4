#pragma once

#include <stdexcept>
#include <string>

namespace accel::launcher {

/// Exit codes of the launcher itself; everything else is the program's own.
/// (`env`, `timeout` and `nohup` use the last three in the same way.)
enum ExitCode : int {
  kUsage = 2,
  /// Not the launcher's: what `accel::kExitStopped` is in the runtime. A
  /// program returns it where it was asked to stop, and has saved its state.
  kStoppedAfterSaving = 75,
  kLauncherFailed = 125,
  kNotExecutable = 126,
  kNotFound = 127,
};

/// Ends the command with one message on standard error and an exit code.
class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}

  int exit_code() const {
    return exit_code_;
  }

 private:
  int exit_code_;
};

/// Throws an `Error` (kLauncherFailed) that says "`what`: reason of errno".
[[noreturn]] void throw_errno(const std::string& what);

} // namespace accel::launcher
