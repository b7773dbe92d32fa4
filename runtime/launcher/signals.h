#pragma once

#include <csignal>
#include <optional>
#include <string>

#include "file_descriptor.h"

namespace accel::launcher {

/// Takes over the launcher's signals: they are blocked and read from a
/// descriptor instead, to the end of the launcher. To be made before any
/// thread.
///
/// A signal that the launcher inherited as ignored (nohup, a shell's
/// background job) stays ignored, here and in the processes.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  struct Arrival {
    int number;
    /// The process that ended, for SIGCHLD: of several that ended since the
    /// last SIGCHLD was read it is the first.
    pid_t sender;
  };

  /// The next signal, or nothing. Does not wait.
  std::optional<Arrival> next();

  /// Readable when `next` has something.
  int fd() const {
    return fd_.get();
  }

  /// Sets the signal state that the launcher was started with; for a forked
  /// child before exec. Async-signal-safe.
  void restore() const;

 private:
  sigset_t inherited_mask_;
  struct sigaction inherited_pipe_;
  struct sigaction inherited_child_;
  FileDescriptor fd_;
};

/// Ends the launcher as `signal` ends a program that does not handle it.
void end_by_signal(int signal);

/// True for signals that ask a program to end (SIGINT, SIGTERM, SIGHUP,
/// SIGQUIT).
bool asks_to_end(int signal);

/// "SIGSEGV"; "signal 40" where it has no name.
std::string signal_name(int signal);

/// "SIGSEGV (Segmentation fault)".
std::string describe_signal(int signal);

} // namespace accel::launcher
