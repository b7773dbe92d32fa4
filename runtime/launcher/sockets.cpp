#include "sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

namespace accel::launcher {
namespace {

FileDescriptor listen_on(int family, const sockaddr* address, socklen_t size) {
  FileDescriptor socket(
      ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) {
    return socket;
  }
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(socket.get(), address, size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

} // namespace

FileDescriptor listen_everywhere(int port) {
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<uint16_t>(port));
  any.sin6_addr = in6addr_any;
  FileDescriptor socket =
      listen_on(AF_INET6, reinterpret_cast<const sockaddr*>(&any), sizeof(any));
  if (!socket && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
    sockaddr_in any4 = {};
    any4.sin_family = AF_INET;
    any4.sin_port = any.sin6_port;
    any4.sin_addr.s_addr = htonl(INADDR_ANY);
    socket = listen_on(
        AF_INET, reinterpret_cast<const sockaddr*>(&any4), sizeof(any4));
  }
  return socket;
}

int port_of(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(
      address.ss_family == AF_INET6
          ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
          : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

FileDescriptor accept_one(int listener) {
  return FileDescriptor(
      ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

FileDescriptor connect_to(
    const std::string& host, int port, double seconds, std::string& why) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(seconds));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(
          host.c_str(), std::to_string(port).c_str(), &hints, &list)) {
    why = ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(
      list, &::freeaddrinfo);
  for (const addrinfo* a = list; a; a = a->ai_next) {
    FileDescriptor socket(::socket(
        a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = socket ? 0 : errno;
    if (socket &&
        ::connect(socket.get(), a->ai_addr, a->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        pollfd fd{socket.get(), POLLOUT, 0};
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            deadline - Clock::now());
        socklen_t size = sizeof(error);
        if (::poll(&fd, 1, std::max(0, static_cast<int>(left.count()))) <= 0) {
          error = ETIMEDOUT;
        } else {
          ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
    }
    if (error == 0) {
      return socket;
    }
    why = std::strerror(error);
  }
  return {};
}

} // namespace accel::launcher
