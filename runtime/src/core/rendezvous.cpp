#include "core/rendezvous.h"

#include <c10/util/Exception.h>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace accel::detail {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  int get() const {
    return descriptor_;
  }
  int release() {
    return std::exchange(descriptor_, -1);
  }

 private:
  int descriptor_;
};

AddressList look_up(const Environment& environment) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(
      environment.master_addr.c_str(),
      std::to_string(environment.master_port).c_str(),
      &hints,
      &list);
  TORCH_CHECK(
      error == 0,
      "accel: process ",
      environment.rank,
      " cannot find the host that MASTER_ADDR names, '",
      environment.master_addr,
      "': ",
      ::gai_strerror(error),
      ". Set it to the address of the machine on which process 0 runs "
      "(127.0.0.1 where all processes run on one).");
  return {list, &::freeaddrinfo};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
      IN6_IS_ADDR_LOOPBACK(
             &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// Binds and listens; -1 with errno set where that fails.
int listen_at(const sockaddr* address, socklen_t size) {
  Socket socket(
      ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) {
    return -1;
  }
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket.get(), address, size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return -1;
  }
  return socket.release();
}

} // namespace

int listen_at_master(const Environment& environment) {
  const auto addresses = look_up(environment);
  int descriptor = -1;
  int error = 0;
  // Other machines have no business at a store that they cannot name.
  const bool loopback = is_loopback(addresses->ai_addr);
  if (loopback) {
    descriptor = listen_at(addresses->ai_addr, addresses->ai_addrlen);
    error = errno;
  } else {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(environment.master_port);
    descriptor =
        listen_at(reinterpret_cast<const sockaddr*>(&any), sizeof any);
    error = errno;
    if (descriptor < 0 && error == EAFNOSUPPORT) {
      sockaddr_in any4{};
      any4.sin_family = AF_INET;
      any4.sin_port = any.sin6_port;
      descriptor =
          listen_at(reinterpret_cast<const sockaddr*>(&any4), sizeof any4);
      error = errno;
    }
  }
  TORCH_CHECK(
      descriptor >= 0,
      "accel: process 0 cannot open port ",
      environment.master_port,
      " (MASTER_PORT), at which the processes meet: ",
      std::strerror(error),
      error == EADDRINUSE
          ? ". Another program, or a run that has not ended, uses it; choose "
            "another MASTER_PORT for all processes (`accel launch` finds a "
            "free one by itself)."
          : ". Choose another MASTER_PORT for all processes.");
  return descriptor;
}

void wait_for_master(const Environment& environment, Deadline deadline) {
  const auto addresses = look_up(environment);
  const auto start = std::chrono::steady_clock::now();
  auto pause = std::chrono::milliseconds(5);
  int error = 0;
  while (true) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket(::socket(
          a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      if (socket.get() >= 0 &&
          ::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) {
        return;
      }
      error = errno;
    }
    const auto now = std::chrono::steady_clock::now();
    TORCH_CHECK(
        now < deadline,
        "accel: process ",
        environment.rank,
        " of ",
        environment.world_size,
        " found nobody at ",
        environment.master_addr,
        ":",
        environment.master_port,
        " (MASTER_ADDR, MASTER_PORT) within ",
        std::chrono::duration_cast<std::chrono::seconds>(now - start).count(),
        " s: ",
        std::strerror(error),
        ". Has process 0 been started, and does the address name its "
        "machine? Look at its output.");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

} // namespace accel::detail
