// The way of standard input to process 0.

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "harness.h"

namespace {

/// `accel` with these arguments on a terminal of its own, of which it is a
/// foreground process, or not.
class OnTerminal {
 public:
  OnTerminal(const std::vector<std::string>& arguments, bool foreground) {
    std::vector<std::string> command{accel_path()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (auto& argument : command) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      const pid_t background = foreground ? 0 : ::fork();
      if (background == 0) {
        if (!foreground) {
          ::setpgid(0, 0);
        }
        ::execv(pointers[0], pointers.data());
        ::_exit(127);
      }
      int status = 0;
      ::waitpid(background, &status, WUNTRACED);
      // A launcher that was stopped for reading the terminal has failed.
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
  }
  ~OnTerminal() {
    ::close(terminal_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(const std::string& text) {
    EXPECT_EQ(
        ::write(terminal_, text.data(), text.size()),
        static_cast<ssize_t>(text.size()));
  }

  /// Reads until it has shown `part`.
  void expect(const std::string& part) {
    while (shown_.find(part) == std::string::npos && read()) {
    }
    expect_part(shown_, part);
  }

  /// What it has shown at its end.
  const std::string& end() {
    while (read()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << shown_;
    return shown_;
  }

 private:
  bool read() {
    pollfd wait{terminal_, POLLIN, 0};
    if (::poll(&wait, 1, 20000) == 0) {
      ADD_FAILURE() << "nothing for 20 seconds behind: " << shown_;
      return false;
    }
    char text[256];
    const ssize_t count = ::read(terminal_, text, sizeof text);
    if (count > 0) {
      shown_.append(text, static_cast<size_t>(count));
    }
    return count > 0;
  }

  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string shown_;
};

} // namespace

TEST(Input, OfATerminalGoesToProcessZeroLineByLine) {
  OnTerminal run(
      launch_probe(
          {"-n", "2"}, {"if", "0", "out", "ready\\n", "stdin", "out", "end\\n"}),
      /*foreground=*/true);
  run.expect("ready");
  run.type("one\n");
  // The echo, and what the program has read.
  run.expect("one\r\none\r\n");
  run.type("two\n");
  run.expect("two\r\ntwo\r\n");
  run.type("\x04"); // the end
  expect_part(run.end(), "end\r\n");
}

TEST(Input, OfATerminalMayStayUnread) {
  OnTerminal run(
      launch_probe({"-n", "2"}, {"out", "ready\\n", "sleep", "1"}),
      /*foreground=*/true);
  run.expect("ready");
  run.type("one\ntwo\n");
  run.end();
}

TEST(Input, OfATerminalIsLeftAloneInTheBackground) {
  OnTerminal run(
      launch_probe({"-n", "2"}, {"out", "ready\\n", "sleep", "1"}),
      /*foreground=*/false);
  run.expect("ready");
  run.type("for the shell\n");
  run.end();
}
