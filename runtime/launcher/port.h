#pragma once

#include <string>

#include "file_descriptor.h"

namespace accel::launcher {

/// A TCP port that process 0 can listen on, kept for it.
///
/// The port stays bound here, though nobody listens: the kernel hands it to no
/// other program then, and yet a socket with SO_REUSEADDR, as c10d's store
/// has, may bind and listen on it.
class Port {
 public:
  /// Takes `number`, or a free port where it is 0. Throws `Error`
  /// (kLauncherFailed) when somebody listens on it.
  explicit Port(int number);

  int number() const {
    return number_;
  }

 private:
  int number_;
  FileDescriptor reservation_;
};

/// Throws `Error` (kLauncherFailed) where `name` resolves to no address or,
/// with `is_here`, to none of this host's.
void check_main_process_ip(const std::string& name, bool is_here);

} // namespace accel::launcher
