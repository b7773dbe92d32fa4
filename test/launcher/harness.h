#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/// What became of a command.
struct Result {
  /// Exit code, or -SIGNAL when a signal ended it.
  int status;
  std::string out;
  std::string err;
  double seconds;
};

/// How a command is started besides its arguments.
struct Surroundings {
  std::string cwd;
  /// Set in the environment; an empty value removes the variable.
  std::map<std::string, std::string> environment;
  /// Given on standard input, which is empty otherwise.
  std::string input;
  /// Standard output and standard error are a terminal; both land in `out`.
  bool terminal = false;
  /// Standard output goes to this file instead.
  std::string output_file;
};

/// A command that runs, its output being collected.
class Running {
 public:
  explicit Running(
      const std::vector<std::string>& command,
      const Surroundings& surroundings = {});
  /// Kills it when it still runs.
  ~Running();

  pid_t pid() const {
    return pid_;
  }

  void signal(int number);

  /// Stops and resumes reading its output.
  void hold_output(bool hold);

  /// What it has written to standard output by now.
  std::string output_so_far();

  /// Waits for its end; a failure of the test, and a kill, after `limit`
  /// seconds.
  Result wait(double limit = 30);

 private:
  void collect(int fd, std::string& text);

  pid_t pid_ = -1;
  std::chrono::steady_clock::time_point start_;
  std::vector<std::thread> readers_;
  std::string out_;
  std::string err_;
  std::mutex mutex_;
  std::atomic<bool> hold_{false};
};

/// Runs `accel` with these arguments to its end.
Result accel(
    const std::vector<std::string>& arguments,
    const Surroundings& surroundings = {});

/// "launch", the options, "--", the probe, and its actions.
std::vector<std::string> launch_probe(
    const std::vector<std::string>& options,
    const std::vector<std::string>& actions);

/// The path of the command `accel`.
std::string accel_path();

/// The path of the program `probe`.
std::string probe_path();

/// A temporary folder, removed with what is in it.
class Folder {
 public:
  Folder();
  ~Folder();

  const std::string& path() const {
    return path_;
  }

  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

  bool has(const std::string& name) const;
  std::string read(const std::string& name) const;
  /// The number in the file `name`, after waiting for the file.
  pid_t wait_for_pid(const std::string& name) const;

 private:
  std::string path_;
};

/// The letter in /proc/PID/stat; 0 when there is no such process.
char process_state(pid_t pid);

/// True for a process that is there and not a zombie.
bool alive(pid_t pid);

/// Waits until `condition` holds; false after `limit` seconds.
bool eventually(const std::function<bool()>& condition, double limit = 10);

/// A TCP connection to this port of the loopback interface, to be closed; -1
/// where nobody listens.
int connect_to(int port);

std::vector<std::string> split_lines(const std::string& text);

/// Fails where `text` does not have `part` in it.
void expect_part(const std::string& text, const std::string& part);

/// Fails where it does.
void expect_no_part(const std::string& text, const std::string& part);
