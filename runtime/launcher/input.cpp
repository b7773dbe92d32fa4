#include "input.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace accel::launcher {
namespace {

/// The longest line of a terminal; a pipe holds it.
constexpr size_t kLine = 4096;

/// Whether the launcher may read the terminal: it is in the foreground, or the
/// terminal is not the one that its signals come from.
bool in_foreground() {
  const pid_t group = ::tcgetpgrp(STDIN_FILENO);
  return group == ::getpgrp() || (group < 0 && errno == ENOTTY);
}

} // namespace

int Input::open() {
  if (::isatty(STDIN_FILENO) != 1) {
    return STDIN_FILENO;
  }
  pipe_ = open_pipe();
  ::fcntl(pipe_.writer.get(), F_SETFL, O_NONBLOCK);
  return pipe_.reader.get();
}

void Input::started() {
  pipe_.reader.reset();
}

bool Input::wanted() const {
  int unread = 0;
  return pipe_.writer && in_foreground() &&
      ::ioctl(pipe_.writer.get(), FIONREAD, &unread) == 0 && unread == 0;
}

void Input::append_poll(std::vector<pollfd>& fds) {
  if (wanted()) {
    fds.push_back({STDIN_FILENO, POLLIN, 0});
  }
}

bool Input::needs_time() const {
  return pipe_.writer && !wanted();
}

void Input::handle_poll(const std::vector<pollfd>& fds) {
  const auto terminal =
      std::find_if(fds.begin(), fds.end(), [](const pollfd& fd) {
        return fd.fd == STDIN_FILENO;
      });
  if (terminal != fds.end() && terminal->revents != 0 && wanted()) {
    pass_line();
  }
}

void Input::pass_line() {
  std::array<char, kLine> line;
  const ssize_t count = ::read(STDIN_FILENO, line.data(), line.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
    return;
  }
  const bool passed = count > 0 &&
      ::write(pipe_.writer.get(), line.data(), static_cast<size_t>(count)) ==
          count;
  if (!passed) {
    // Its end, a terminal that is gone, or a process that reads no more.
    pipe_.writer.reset();
  }
}

} // namespace accel::launcher
