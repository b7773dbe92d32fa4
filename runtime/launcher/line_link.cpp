#include "line_link.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace accel::launcher {
namespace {

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

std::string address_of(int fd, bool own) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  char text[NI_MAXHOST] = "";
  if ((own ? ::getsockname(fd, generic, &size)
           : ::getpeername(fd, generic, &size)) == 0) {
    ::getnameinfo(
        generic, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  }
  // What a socket for both protocols calls an address of IPv4.
  const std::string mapped = "::ffff:";
  const std::string result = text;
  return result.rfind(mapped, 0) == 0 ? result.substr(mapped.size()) : result;
}

} // namespace

LineLink::LineLink(FileDescriptor socket, size_t longest)
    : socket_(std::move(socket)), longest_(longest) {
  const int fd = socket_.get();
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  // What was sent and not acknowledged counts by this one instead.
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 8000);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

void LineLink::close(const std::string& reason) {
  if (open()) {
    socket_.reset();
    out_.clear();
    reason_ = reason;
  }
}

void LineLink::send(const std::string& line) {
  if (open()) {
    out_ += line + "\n";
    flush();
  }
}

void LineLink::flush() {
  while (pending()) {
    const ssize_t count =
        ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      return;
    }
    if (count < 0) {
      close(std::strerror(errno));
      return;
    }
    out_.erase(0, static_cast<size_t>(count));
  }
}

void LineLink::read() {
  char buffer[4096];
  while (open()) {
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof(buffer), 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      return;
    }
    if (count <= 0) {
      close(count == 0 ? "it has ended without a message" : std::strerror(errno));
      return;
    }
    in_.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = in_.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      lines_.push_back(in_.substr(begin, end - begin));
    }
    in_.erase(0, begin);
    if (in_.size() > longest_) {
      close("it says what no launcher says");
    }
  }
}

std::optional<std::string> LineLink::next() {
  if (lines_.empty()) {
    return std::nullopt;
  }
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

std::string LineLink::own_address() const {
  return address_of(socket_.get(), true);
}

std::string LineLink::peer_address() const {
  return address_of(socket_.get(), false);
}

void LineLink::part(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(seconds));
  bool said = false;
  while (open() && Clock::now() < deadline) {
    flush();
    if (open() && out_.empty() && !std::exchange(said, true)) {
      ::shutdown(socket_.get(), SHUT_WR);
    }
    pollfd fd{
        socket_.get(),
        static_cast<short>(pending() ? POLLIN | POLLOUT : POLLIN),
        0};
    ::poll(&fd, 1, 50);
    read();
  }
}

} // namespace accel::launcher
