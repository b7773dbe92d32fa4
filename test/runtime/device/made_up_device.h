#pragma once

#include "device/backend.h"

#include <string>
#include <vector>

namespace accel::test {

/// A device without hardware that behaves as a GPU under NCCL does: its
/// tensors (all of floating point) lie in the host's memory and are carried by
/// a Gloo of its own; an operation's `wait` returns at once, and only
/// `DeviceBackend::wait` waits for the result; ending a group lets those go who
/// wait, without an error.
struct MadeUpDevice {
  /// What was done with it, in order: "make accel_main", "allreduce
  /// accel_main", "shutdown accel_main", "abort accel_main", "wait".
  std::vector<std::string> events() const;
  int64_t count(const std::string& event) const;

  /// As the world is given it. `identity`: this process's.
  detail::DeviceBackend backend(const std::string& identity) const;
};

} // namespace accel::test
