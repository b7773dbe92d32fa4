#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "signals.h"

namespace accel::launcher {

/// What is to be started, and with what.
struct ProcessStart {
  /// The file to execute; `arguments[0]` is what the user wrote for it.
  std::string path;
  std::vector<std::string> arguments;
  /// "NAME=value", the whole environment.
  std::vector<std::string> environment;
  /// Become descriptors 0, 1 and 2.
  int standard_input;
  int standard_output;
  int standard_error;
  /// The cores that it may run on; empty: all that the launcher may use.
  std::vector<int> cores;
};

/// Starts a process as the leader of its own process group; it is killed when
/// the calling thread ends, however that happens.
///
/// Returns its id. Throws `Error` (kNotExecutable) when the file cannot be
/// executed, and (kLauncherFailed) when no process can be made.
pid_t start_process(const ProcessStart& start, const Signals& signals);

/// Finds the file that `name` means, as a shell does: a path where it holds a
/// '/', otherwise in $PATH.
///
/// Throws `Error` (kNotFound or kNotExecutable) with a remedy.
std::string find_program(const std::string& name);

} // namespace accel::launcher
