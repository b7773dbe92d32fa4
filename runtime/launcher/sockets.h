#pragma once

#include <string>

#include "file_descriptor.h"

namespace accel::launcher {

/// Listens on every interface at `port`; a free one where it is 0. Empty, with
/// errno set, where that is not possible.
FileDescriptor listen_everywhere(int port);

/// The port that a listening socket has.
int port_of(int fd);

/// The connection that somebody has made to a listening socket, if any.
FileDescriptor accept_one(int listener);

/// Connects within `seconds`. Empty, with `why` set, where that fails.
FileDescriptor connect_to(
    const std::string& host, int port, double seconds, std::string& why);

} // namespace accel::launcher
