#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace accel::detail {

/// Tells `accel launch`, where it started this process, that the process is
/// about to fail because another one is gone; so that the launcher blames the
/// other one, whichever ends first. Does nothing under other launchers.
inline void note_lost_peer(const std::string& what) {
  const char* path = std::getenv("ACCEL_FAILURE_NOTE");
  const int sheet = path ? ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (sheet >= 0) {
    (void)!::write(sheet, what.data(), what.size());
    ::close(sheet);
  }
}

} // namespace accel::detail
