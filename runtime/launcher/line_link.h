#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "file_descriptor.h"

namespace accel::launcher {

/// A TCP connection on which lines of text go both ways. Nothing here waits.
///
/// What comes may be anything, whoever can reach the port: a line that does not
/// end within `longest` bytes closes the connection.
class LineLink {
 public:
  /// Takes a connected socket. The kernel is told to notice within about eight
  /// seconds when the other host does not answer any more.
  explicit LineLink(FileDescriptor socket, size_t longest = size_t{1} << 16);

  /// For poll; -1 once it is closed.
  int fd() const {
    return socket_.get();
  }

  bool open() const {
    return static_cast<bool>(socket_);
  }

  /// Why it is closed: "it has ended without a message" or the system's reason.
  const std::string& reason() const {
    return reason_;
  }

  /// From now on lines may be as long as this.
  void allow(size_t longest) {
    longest_ = longest;
  }

  /// Sends a line, without its end; what the kernel does not take yet goes with
  /// the next `flush`.
  void send(const std::string& line);

  /// True while something waits to be sent.
  bool pending() const {
    return open() && !out_.empty();
  }
  void flush();

  /// Takes what has come. To be called when `fd` is readable.
  void read();

  /// The next whole line, without its end.
  std::optional<std::string> next();

  /// The address of this end, and of the other one: "10.0.0.2".
  std::string own_address() const;
  std::string peer_address() const;

  /// Sends what is left and lets the other side read it: waits up to `seconds`
  /// for it to close its end.
  void part(double seconds);

 private:
  void close(const std::string& reason);

  FileDescriptor socket_;
  size_t longest_;
  std::string in_;
  std::string out_;
  std::deque<std::string> lines_;
  std::string reason_;
};

} // namespace accel::launcher
