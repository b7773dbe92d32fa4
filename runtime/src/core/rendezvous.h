#pragma once

#include "core/environment.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace accel::detail {

/// A point in time after which waiting is given up.
using Deadline = std::chrono::steady_clock::time_point;

/// Process 0: a listening socket at the master's port, to be handed to the
/// store, which owns it from then on. Throws where the port is taken.
int listen_at_master(const Environment& environment);

/// The others: returns when somebody listens at the master's address. Throws
/// where that does not happen until `deadline` or the name is unknown.
void wait_for_master(const Environment& environment, Deadline deadline);

/// The address at which the other hosts reach this one: that of the interface
/// through which the master is reached. (What the host's own name resolves to
/// is often 127.0.1.1.) Throws where there is none but the loopback interface.
std::string local_address(const Environment& environment);

/// TCP connections of this process, known by their descriptors and by both of
/// their ends: a descriptor that has become something else is left alone.
class Connections {
 public:
  /// None.
  Connections() = default;

  /// Those that are open now and are none of these.
  Connections newer() const;

  /// All that are open now.
  static Connections open_now();

  /// Makes the kernel look after those to other hosts: where the other end does
  /// not answer for about eight seconds, because its host or the network is
  /// down, the connection fails.
  void keep_alive() const;

  /// Ends them, so that whoever waits for them, here or at the other end, wakes
  /// up with an error. (Gloo's own way of closing wakes only the other end.)
  void shut_down() const;

 private:
  /// Descriptor to the ends' addresses.
  std::map<int, std::string> connections_;
};

} // namespace accel::detail
