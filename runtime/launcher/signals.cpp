#include "signals.h"

#include <sys/signalfd.h>

#include <cstring>

#include "error.h"

namespace accel::launcher {

Signals::Signals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction inherited;
    ::sigaction(signal, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) {
      sigaddset(&taken, signal);
    }
  }
  sigaddset(&taken, SIGCHLD);
  struct sigaction action = {};
  // An inherited SIG_IGN would make the kernel throw our children's exit
  // codes away.
  action.sa_handler = SIG_DFL;
  action.sa_flags = SA_NOCLDSTOP;
  ::sigaction(SIGCHLD, &action, &inherited_child_);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &inherited_pipe_);
  ::sigprocmask(SIG_BLOCK, &taken, &inherited_mask_);
  fd_ = FileDescriptor(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) {
    throw_errno("cannot make a signal descriptor");
  }
}

std::optional<Signals::Arrival> Signals::next() {
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) {
    return std::nullopt;
  }
  return Arrival{
      static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)};
}

void Signals::restore() const {
  ::sigaction(SIGPIPE, &inherited_pipe_, nullptr);
  ::sigaction(SIGCHLD, &inherited_child_, nullptr);
  ::sigprocmask(SIG_SETMASK, &inherited_mask_, nullptr);
}

void end_by_signal(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
}

bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP ||
         signal == SIGQUIT;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string describe_signal(int signal) {
  const char* description = ::sigdescr_np(signal);
  return signal_name(signal) +
         (description ? std::string(" (") + description + ")" : std::string());
}

} // namespace accel::launcher
