#include "error.h"

#include <cerrno>
#include <cstring>

namespace accel::launcher {

void throw_errno(const std::string& what) {
  throw Error(kLauncherFailed, what + ": " + std::strerror(errno));
}

} // namespace accel::launcher
