#include "process.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "channel.h"
#include "error.h"

namespace accel::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) {
    result.push_back(const_cast<char*>(string.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

bool is_file(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_executable_file(const std::string& path) {
  return is_file(path) && ::access(path.c_str(), X_OK) == 0;
}

} // namespace

pid_t start_process(const ProcessStart& start, const Signals& signals) {
  std::vector<char*> arguments = pointers(start.arguments);
  std::vector<char*> environment = pointers(start.environment);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core : start.cores) {
    CPU_SET(core, &cores);
  }
  Channel exec_error = open_pipe();
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    throw_errno("cannot start a process");
  }
  if (pid == 0) {
    // Only async-signal-safe calls from here on.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) {
      ::_exit(kLauncherFailed); // The launcher died before the line above.
    }
    if (!start.cores.empty()) {
      ::sched_setaffinity(0, sizeof(cores), &cores);
    }
    ::dup2(start.standard_input, STDIN_FILENO);
    ::dup2(start.standard_output, STDOUT_FILENO);
    ::dup2(start.standard_error, STDERR_FILENO);
    signals.restore();
    ::execve(start.path.c_str(), arguments.data(), environment.data());
    const int error = errno;
    (void)!::write(exec_error.writer.get(), &error, sizeof(error));
    ::_exit(kNotExecutable);
  }
  // Also done here, so that the group exists when we return.
  ::setpgid(pid, pid);
  exec_error.writer.reset();
  int error = 0;
  ssize_t count;
  do {
    count = ::read(exec_error.reader.get(), &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count == sizeof(error)) {
    ::waitpid(pid, nullptr, 0);
    throw Error(
        kNotExecutable,
        "cannot execute " + start.path + ": " + std::strerror(error) +
            (error == ENOEXEC
                 ? " (a script needs a first line such as #!/bin/sh)"
                 : ""));
  }
  return pid;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (is_executable_file(name)) {
      return name;
    }
    if (is_file(name)) {
      throw Error(
          kNotExecutable,
          name +
              " is not executable. For a script name its interpreter too, "
              "otherwise run: chmod +x " +
              name);
    }
    if (::access(name.c_str(), F_OK) == 0) {
      throw Error(kNotExecutable, name + " is not a file that can be executed");
    }
    throw Error(kNotFound, name + ": no such program");
  }
  const char* variable = std::getenv("PATH");
  std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= path.size() && !name.empty();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(candidate)) {
      return candidate;
    }
    begin = end + 1;
  }
  const std::string here = "./" + name;
  throw Error(
      kNotFound,
      name + ": no such program in $PATH" +
          (is_file(here) ? ". Did you mean " + here + "?" : ""));
}

} // namespace accel::launcher
