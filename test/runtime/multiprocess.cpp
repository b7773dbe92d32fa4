#include "multiprocess.h"
#include "../end_quickly.h"
#include "process_template.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

namespace accel::test {
namespace {

constexpr const char* kFunctionVariable = "ACCEL_TEST_FUNCTION";

using Clock = std::chrono::steady_clock;

std::map<std::string, void (*)()>& functions() {
  static std::map<std::string, void (*)()> table;
  return table;
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// The parent's ends of one process's pipes.
struct Child {
  pid_t pid = -1;
  int pipes[2] = {-1, -1};
  bool running = true;
};

using Changes = std::map<std::string, std::optional<std::string>>;

Changes changes_of_environment(
    const std::string& function,
    int rank,
    int world_size,
    int port,
    const RunOptions& options) {
  Changes changes = {
      {kFunctionVariable, function},
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(world_size)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(port)},
      {"OMP_NUM_THREADS", "1"}};
  for (auto [name, value] : options.environment) {
    if (const size_t at = value ? value->find('%') : std::string::npos;
        at != std::string::npos) {
      value->replace(at, 1, std::to_string(rank));
    }
    changes[name] = value;
  }
  return changes;
}

std::vector<std::string> environment_with(const Changes& changes) {
  std::vector<std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (changes.count(text.substr(0, text.find('='))) == 0) {
      result.push_back(text);
    }
  }
  for (const auto& [name, value] : changes) {
    if (value) {
      result.push_back(name + "=" + *value);
    }
  }
  return result;
}

/// Whether a process with these changes needs its libraries loaded anew.
bool can_be_forked(const Changes& changes) {
  std::vector<std::string> names;
  for (const auto& [name, value] : changes) {
    const char* now = std::getenv(name.c_str());
    if ((now != nullptr) != value.has_value() || (now != nullptr && now != *value)) {
      names.push_back(name);
    }
  }
  return ProcessTemplate::serves(names);
}

Child start(const Changes& changes) {
  auto environment = environment_with(changes);
  Child child;
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    fail("pipe");
  }
  child.pipes[0] = out[0];
  child.pipes[1] = err[0];
  if (can_be_forked(changes)) {
    child.pid = ProcessTemplate::start(environment, out[1], err[1]);
    ::close(out[1]);
    ::close(err[1]);
    return child;
  }
  // Everything that allocates happens before fork.
  std::vector<char*> variables;
  for (auto& variable : environment) {
    variables.push_back(variable.data());
  }
  variables.push_back(nullptr);
  char name[] = "rank";
  char* arguments[] = {name, nullptr};
  child.pid = ::fork();
  if (child.pid < 0) {
    fail("fork");
  }
  if (child.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execve("/proc/self/exe", arguments, variables.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  return child;
}

/// Appends what can be read; closes the pipe at its end.
void drain(int& pipe, std::string& text) {
  char buffer[4096];
  const ssize_t count = ::read(pipe, buffer, sizeof buffer);
  if (count > 0) {
    text.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    ::close(pipe);
    pipe = -1;
  }
}

void collect(Child& child, RankResult& result, Clock::time_point start) {
  int status = 0;
  if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid) {
    return;
  }
  child.running = false;
  result.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      Clock::now() - start);
  if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  }
}

} // namespace

bool register_function(const char* name, void (*function)()) {
  return functions().emplace(name, function).second;
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (socket < 0 || ::bind(socket, generic, size) != 0 ||
      ::getsockname(socket, generic, &size) != 0) {
    fail("free_port");
  }
  ::close(socket);
  return ntohs(address.sin_port);
}

std::vector<RankResult> run(
    const std::string& function,
    int world_size,
    const RunOptions& options) {
  if (functions().count(function) == 0) {
    throw std::logic_error("no ACCEL_RANK_FUNCTION named " + function);
  }
  const int port = options.port != 0 ? options.port : free_port();
  const auto begin = Clock::now();
  const auto deadline = begin + options.timeout;
  std::vector<Child> children;
  std::vector<RankResult> results(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    children.push_back(
        start(changes_of_environment(function, rank, world_size, port, options)));
  }
  bool killed = false;
  while (true) {
    std::vector<pollfd> waits;
    bool running = false;
    for (size_t i = 0; i < children.size(); ++i) {
      collect(children[i], results[i], begin);
      running = running || children[i].running;
      for (const int pipe : children[i].pipes) {
        if (pipe >= 0) {
          waits.push_back({pipe, POLLIN, 0});
        }
      }
    }
    if (waits.empty() && !running) {
      return results;
    }
    if (!killed && Clock::now() >= deadline) {
      killed = true;
      for (size_t i = 0; i < children.size(); ++i) {
        if (children[i].running) {
          results[i].timed_out = true;
          ::kill(children[i].pid, SIGKILL);
        }
      }
    }
    ::poll(waits.data(), waits.size(), 10);
    for (const auto& wait : waits) {
      if (wait.revents == 0) {
        continue;
      }
      for (size_t i = 0; i < children.size(); ++i) {
        if (children[i].pipes[0] == wait.fd) {
          drain(children[i].pipes[0], results[i].output);
        } else if (children[i].pipes[1] == wait.fd) {
          drain(children[i].pipes[1], results[i].error);
        }
      }
    }
  }
}

std::vector<RankResult> run_and_expect_success(
    const std::string& function,
    int world_size,
    const RunOptions& options) {
  auto results = run(function, world_size, options);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const auto& result = results[rank];
    EXPECT_TRUE(result.success())
        << function << ": process " << rank << " of " << world_size << ": "
        << (result.timed_out ? "timed out, " : "") << "exit code "
        << result.exit_code << ", signal " << result.signal
        << "\n--- standard output\n"
        << result.output << "\n--- standard error\n"
        << result.error;
  }
  return results;
}

int run_rank_function() {
  try {
    functions().at(std::getenv(kFunctionVariable))();
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  // EXPECT_ and ASSERT_ macros report outside of a test too.
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1
                                                                           : 0;
}

} // namespace accel::test

int main(int argc, char** argv) {
  accel::test::end_quickly();
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv(accel::test::kFunctionVariable) != nullptr) {
    return accel::test::run_rank_function();
  }
  accel::test::ProcessTemplate::make();
  return RUN_ALL_TESTS();
}
