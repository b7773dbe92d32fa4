#include "core/rendezvous.h"

#include <c10/util/Exception.h>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
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
  // Other machines have no business at a store that they cannot name. (With
  // several, a name that means the loopback interface here means another one
  // there: Debian gives a host's own name 127.0.1.1.)
  const bool loopback =
      is_loopback(addresses->ai_addr) && environment.single_host();
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

std::string local_address(const Environment& environment) {
  const auto text_of = [](const sockaddr* address, socklen_t size) {
    char text[NI_MAXHOST] = "";
    ::getnameinfo(
        address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    return std::string(text);
  };
  const auto addresses = look_up(environment);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    // Connecting a datagram socket sends nothing; it chooses the interface.
    Socket socket(::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* generic = reinterpret_cast<sockaddr*>(&own);
    if (socket.get() >= 0 &&
        ::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0 &&
        ::getsockname(socket.get(), generic, &size) == 0 &&
        !is_loopback(generic)) {
      return text_of(generic, size);
    }
  }
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(
        list, &::freeifaddrs);
    for (const int family : {AF_INET, AF_INET6}) {
      for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == family &&
            (i->ifa_flags & IFF_UP) != 0 && !is_loopback(i->ifa_addr)) {
          return text_of(
              i->ifa_addr,
              family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
        }
      }
    }
  }
  TORCH_CHECK(
      false,
      "accel: the ",
      environment.world_size,
      " processes run on several hosts, but this one has no network interface "
      "besides the loopback one. If all run here, set LOCAL_WORLD_SIZE to ",
      environment.world_size,
      "; otherwise name the interface with GLOO_SOCKET_IFNAME.");
  return ""; // Not reached.
}

namespace {

/// The bytes of both ends' addresses; empty where `fd` is no TCP connection.
std::string ends_of(int fd) {
  std::string ends;
  for (const bool own : {true, false}) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const int error = own ? ::getsockname(fd, generic, &size)
                          : ::getpeername(fd, generic, &size);
    if (error != 0 ||
        (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
      return "";
    }
    ends.append(reinterpret_cast<const char*>(&address), size);
  }
  return ends;
}

} // namespace

Connections Connections::open_now() {
  Connections result;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", none)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    auto ends = ends_of(fd);
    if (!ends.empty()) {
      result.connections_.emplace(fd, std::move(ends));
    }
  }
  return result;
}

Connections Connections::newer() const {
  Connections result = open_now();
  for (const auto& [fd, ends] : connections_) {
    const auto found = result.connections_.find(fd);
    if (found != result.connections_.end() && found->second == ends) {
      result.connections_.erase(found);
    }
  }
  return result;
}

void Connections::keep_alive() const {
  for (const auto& [fd, ends] : connections_) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    auto* generic = reinterpret_cast<sockaddr*>(&peer);
    if (ends_of(fd) != ends || ::getpeername(fd, generic, &size) != 0 ||
        is_loopback(generic)) {
      continue;
    }
    const int on = 1;
    const int idle = 2;
    const int interval = 2;
    const int count = 3;
    // What was sent and not acknowledged counts by this one instead.
    const unsigned int milliseconds = 8000;
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    ::setsockopt(
        fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  }
}

void Connections::shut_down() const {
  for (const auto& [fd, ends] : connections_) {
    if (ends_of(fd) == ends) {
      ::shutdown(fd, SHUT_RDWR);
    }
  }
}

} // namespace accel::detail
