// Runs programs that were compiled as shared libraries, each in processes that
// are forked from this one. Loading LibTorch takes longer than most generated
// programs train, and here it is loaded once.
//
//     runner
//
// reads a line for each run from standard input, with its fields separated by tabs:
//
//     PROCESSES  SECONDS  LIBRARY#FUNCTION  FOLDER  [NAME=VALUE]...
//
// FUNCTION is what main is called in the library. FOLDER is the working folder. What process N prints is in FOLDER.N.out and
// FOLDER.N.err. With 2 and more processes they find each other by the environment
// of torchrun, with process 0 as the host of the store. The answer is a line with
// the exit code, 0 if all processes ended so; of a process that a signal has ended
// it is minus the signal's number; and "timeout" where SECONDS were over.
//
// Nothing may start a thread in this process: a child would not have it.

#include "../end_quickly.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Run {
  int processes = 1;
  double seconds = 60;
  std::string library;
  std::string function; // its main
  std::string folder;
  std::vector<std::string> variables;
};

[[noreturn]] void fail(const std::string& what) {
  std::perror(what.c_str());
  std::_Exit(125);
}

void redirect(const std::string& path, int to) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0 || dup2(file, to) < 0) {
    fail(path);
  }
  close(file);
}

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("a free port");
  }
  close(listener);
  return ntohs(address.sin_port);
}

[[noreturn]] void become(const Run& run, int rank, int port, const std::string& id) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string prefix = run.folder + "." + std::to_string(rank);
  redirect(prefix + ".out", STDOUT_FILENO);
  redirect(prefix + ".err", STDERR_FILENO);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  close(nothing);
  if (chdir(run.folder.c_str()) != 0) {
    fail(run.folder);
  }
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  if (run.processes > 1) {
    const std::string number = std::to_string(rank);
    const std::string count = std::to_string(run.processes);
    for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) {
      set(name, number);
    }
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
      set(name, count);
    }
    set("GROUP_RANK", "0");
    set("GROUP_WORLD_SIZE", "1");
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port));
    set("TORCHELASTIC_RUN_ID", id);
  }
  for (const std::string& entry : run.variables) {
    const size_t equals = entry.find('=');
    set(entry.substr(0, equals).c_str(), entry.substr(equals + 1));
  }
  // As in an executable, what the program defines comes before what LibTorch
  // defines: at::print of <accel/detail/print.h>.
  void* library = dlopen(run.library.c_str(), RTLD_NOW | RTLD_DEEPBIND);
  if (!library) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::_Exit(127);
  }
  const auto program = reinterpret_cast<int (*)(int, char**)>(dlsym(library, run.function.c_str()));
  if (!program) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::_Exit(127);
  }
  std::string name = "program";
  char* arguments[] = {name.data(), nullptr};
  std::exit(program(1, arguments));
}

std::string carry_out(const Run& run) {
  using Clock = std::chrono::steady_clock;
  static int number = 0;
  const std::string id = "generated-" + std::to_string(getpid()) + "-" + std::to_string(++number);
  const int port = run.processes > 1 ? free_port() : 0;
  std::vector<pid_t> children;
  for (int rank = 0; rank < run.processes; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      fail("fork");
    }
    if (child == 0) {
      become(run, rank, port, id);
    }
    children.push_back(child);
  }
  auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(run.seconds));
  std::string answer = "0";
  size_t left = children.size();
  while (left) {
    bool ended = false;
    for (pid_t& child : children) {
      int status = 0;
      if (child && waitpid(child, &status, WNOHANG) == child) {
        child = 0;
        --left;
        ended = true;
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        if (code != 0 && answer == "0") {
          answer = std::to_string(code);
          // The others are to say what they miss, but not to wait for long.
          limit = std::min(limit, Clock::now() + std::chrono::seconds(3));
        }
      }
    }
    if (left && Clock::now() > limit) {
      if (answer == "0") {
        answer = "timeout";
      }
      for (const pid_t child : children) {
        if (child) {
          kill(child, SIGKILL);
        }
      }
    }
    if (!ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return answer;
}

} // namespace

int main() {
  accel::test::end_quickly();
  signal(SIGPIPE, SIG_DFL);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<std::string> fields;
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, '\t');) {
      fields.push_back(field);
    }
    if (fields.size() < 4) {
      std::cerr << "error: a run has at least 4 fields, this one has " << fields.size() << ": '" << line << "'\n";
      return 2;
    }
    const size_t function = fields[2].rfind('#');
    if (function == std::string::npos) {
      std::cerr << "error: a run has LIBRARY#FUNCTION in its third field, this one has '" << fields[2] << "'\n";
      return 2;
    }
    Run run{std::atoi(fields[0].c_str()), std::atof(fields[1].c_str()), fields[2].substr(0, function), fields[2].substr(function + 1),
            fields[3], {fields.begin() + 4, fields.end()}};
    std::cout << carry_out(run) << std::endl;
  }
}
