#include "descendants.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "error.h"

namespace accel::launcher {
namespace {

/// The parent that /proc/PID/stat names; 0 when the process is gone.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // "PID (NAME) STATE PARENT …", and NAME may hold anything.
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 4 >= line.size()) {
    return 0;
  }
  return static_cast<pid_t>(std::atol(line.c_str() + end_of_name + 4));
}

} // namespace

void adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
    throw_errno("cannot become the parent of orphaned processes");
  }
}

std::vector<pid_t> children() {
  std::vector<pid_t> result;
  std::unique_ptr<DIR, int (*)(DIR*)> processes(::opendir("/proc"), ::closedir);
  if (!processes) {
    return result;
  }
  const pid_t self = ::getpid();
  while (const dirent* entry = ::readdir(processes.get())) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) {
      const pid_t pid = static_cast<pid_t>(std::atol(entry->d_name));
      if (parent_of(pid) == self) {
        result.push_back(pid);
      }
    }
  }
  return result;
}

bool reap(pid_t pid) {
  return ::waitpid(pid, nullptr, WNOHANG) == pid;
}

} // namespace accel::launcher
