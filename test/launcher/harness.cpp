#include "build_paths.h"
#include "harness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

} // namespace

Running::Running(
    const std::vector<std::string>& command, const Surroundings& surroundings)
    : start_(Clock::now()) {
  int out[2];
  int err[2];
  int in[2];
  if (surroundings.terminal) {
    EXPECT_EQ(openpty(&out[0], &out[1], nullptr, nullptr, nullptr), 0);
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    fcntl(out[1], F_SETFD, FD_CLOEXEC);
    err[0] = -1;
    err[1] = out[1];
  } else {
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
  }
  EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    // Whoever runs the tests in the background ignores SIGINT and SIGQUIT.
    for (int number : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGPIPE}) {
      ::signal(number, SIG_DFL);
    }
    // Whatever whoever runs the tests has configured.
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    unsetenv("ACCEL_CONFIG_FILE");
    for (const auto& [name, value] : surroundings.environment) {
      value.empty() ? unsetenv(name.c_str())
                    : setenv(name.c_str(), value.c_str(), 1);
    }
    if (!surroundings.cwd.empty() && chdir(surroundings.cwd.c_str()) != 0) {
      _exit(97);
    }
    int output = out[1];
    if (!surroundings.output_file.empty()) {
      output = open(surroundings.output_file.c_str(), O_WRONLY);
    }
    dup2(in[0], 0);
    dup2(output, 1);
    dup2(err[1], 2);
    execv(arguments[0], arguments.data());
    _exit(97);
  }
  close(in[0]);
  close(out[1]);
  if (!surroundings.terminal) {
    close(err[1]);
  }
  readers_.emplace_back([this, fd = out[0]] { collect(fd, out_); });
  readers_.emplace_back([this, fd = err[0]] { collect(fd, err_); });
  EXPECT_EQ(
      write(in[1], surroundings.input.data(), surroundings.input.size()),
      static_cast<ssize_t>(surroundings.input.size()));
  close(in[1]);
}

Running::~Running() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (std::thread& reader : readers_) {
    reader.join();
  }
}

void Running::collect(int fd, std::string& text) {
  if (fd < 0) {
    return;
  }
  char buffer[65536];
  while (true) {
    while (hold_) {
      usleep(1000);
    }
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count <= 0) {
      break;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    text.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
}

void Running::signal(int number) {
  ASSERT_GT(pid_, 0);
  kill(pid_, number);
}

std::string Running::output_so_far() {
  std::lock_guard<std::mutex> lock(mutex_);
  return out_;
}

void Running::hold_output(bool hold) {
  hold_ = hold;
}

Result Running::wait(double limit) {
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (since(start_) > limit) {
      ADD_FAILURE() << "still running after " << limit << " s";
      kill(pid_, SIGKILL);
      limit = 1e9;
    }
    usleep(1000);
  }
  pid_ = -1;
  hold_ = false;
  Result result;
  result.seconds = since(start_);
  for (std::thread& reader : readers_) {
    reader.join();
  }
  readers_.clear();
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result.out = out_;
  result.err = err_;
  return result;
}

std::string accel_path() {
  return build_paths::kAccel;
}

std::string probe_path() {
  return build_paths::kProbe;
}

Result accel(
    const std::vector<std::string>& arguments,
    const Surroundings& surroundings) {
  std::vector<std::string> command{accel_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return Running(command, surroundings).wait();
}

std::vector<std::string> launch_probe(
    const std::vector<std::string>& options,
    const std::vector<std::string>& actions) {
  std::vector<std::string> result{"launch"};
  result.insert(result.end(), options.begin(), options.end());
  result.push_back("--");
  result.push_back(probe_path());
  result.insert(result.end(), actions.begin(), actions.end());
  return result;
}

Folder::Folder() {
  std::string name =
      (std::filesystem::temp_directory_path() / "accel-launcher-XXXXXX")
          .string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool Folder::has(const std::string& name) const {
  return std::filesystem::exists(*this / name);
}

std::string Folder::read(const std::string& name) const {
  std::ifstream file(*this / name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t Folder::wait_for_pid(const std::string& name) const {
  EXPECT_TRUE(eventually([&] { return has(name); })) << name;
  return static_cast<pid_t>(std::atoi(read(name).c_str()));
}

char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(") ");
  return end == std::string::npos ? 0 : line[end + 2];
}

bool alive(pid_t pid) {
  const char state = process_state(pid);
  return state != 0 && state != 'Z' && state != 'X';
}

bool eventually(const std::function<bool()>& condition, double limit) {
  const auto start = Clock::now();
  while (!condition()) {
    if (since(start) > limit) {
      return false;
    }
    usleep(2000);
  }
  return true;
}

int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

void expect_no_part(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << part << " in:\n" << text;
}
