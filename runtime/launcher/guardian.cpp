#include "guardian.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "channel.h"
#include "error.h"

namespace accel::launcher {
namespace {

/// Sent in place of a group when the launcher ends in good order.
constexpr pid_t kDismissed = 0;

[[noreturn]] void guard(int line) {
  // Out of the terminal's foreground group, and deaf to what ends the
  // launcher.
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, "accel-guardian");
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  // Nothing of the launcher's may stay open because of us: not its output,
  // and not the writing end of the line.
  ::dup2(line, STDIN_FILENO);
  if (::close_range(1, ~0U, 0) != 0) {
    for (int fd = 1; fd < static_cast<int>(::sysconf(_SC_OPEN_MAX)); ++fd) {
      ::close(fd);
    }
  }
  std::vector<pid_t> groups;
  while (true) {
    pid_t group;
    const ssize_t count = ::read(STDIN_FILENO, &group, sizeof(group));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count != sizeof(group)) {
      for (pid_t orphaned : groups) {
        ::kill(-orphaned, SIGKILL);
      }
      std::_Exit(1);
    }
    if (group == kDismissed) {
      std::_Exit(0);
    }
    if (group < 0) {
      groups.erase(
          std::remove(groups.begin(), groups.end(), -group), groups.end());
    } else {
      groups.push_back(group);
    }
  }
}

} // namespace

Guardian::Guardian() {
  Channel line = open_pipe();
  pid_ = ::fork();
  if (pid_ < 0) {
    throw_errno("cannot start a process");
  }
  if (pid_ == 0) {
    guard(line.reader.get());
  }
  line_ = std::move(line.writer);
}

Guardian::~Guardian() {
  announce_group(kDismissed);
  line_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::announce_group(pid_t group) {
  (void)!::write(line_.get(), &group, sizeof(group));
}

void Guardian::withdraw_group(pid_t group) {
  announce_group(-group);
}

} // namespace accel::launcher
