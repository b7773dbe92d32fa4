#include "port.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "error.h"
#include "sockets.h"

namespace accel::launcher {
namespace {

FileDescriptor open_socket(int family) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (socket) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  return socket;
}

/// Listens for a moment on every interface, as the store will. Returns 0 or
/// the errno.
int try_to_listen(int number) {
  return listen_everywhere(number) ? 0 : errno;
}

} // namespace

void check_main_process_ip(const std::string& name, bool is_here) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &list)) {
    throw Error(
        kLauncherFailed,
        "this host does not know the host of process 0, --main-process-ip " +
            name + ": " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(
      list, &::freeaddrinfo);
  bool found = !is_here;
  for (const addrinfo* a = list; a && !found; a = a->ai_next) {
    const FileDescriptor socket(
        ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // The port is 0: any.
    found = socket && ::bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0;
  }
  if (!found) {
    throw Error(
        kLauncherFailed,
        "--main-process-ip " + name +
            " is none of this host's addresses, but --machine-rank 0 says "
            "that process 0 runs here");
  }
}

Port::Port(int number) : number_(number) {
  if (number != 0) {
    if (const int error = try_to_listen(number)) {
      throw Error(
          kLauncherFailed,
          "port " + std::to_string(number) +
              " cannot be used: " + std::strerror(error) +
              ". Give another --main-process-port, or leave the option out "
              "and a free port is chosen");
    }
  }
  reservation_ = open_socket(AF_INET);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(number));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!reservation_ || ::bind(reservation_.get(), generic, size) != 0 ||
      ::getsockname(reservation_.get(), generic, &size) != 0) {
    throw_errno("cannot reserve a port on the loopback interface");
  }
  number_ = ntohs(address.sin_port);
}

} // namespace accel::launcher
