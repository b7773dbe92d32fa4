#pragma once

#include <sys/types.h>

#include <vector>

namespace accel::launcher {

/// Makes the calling process inherit the orphans among its descendants, in
/// place of init. Throws `Error` where the kernel cannot.
void adopt_orphans();

/// The children of the calling process, zombies included.
std::vector<pid_t> children();

/// Collects `pid` if it is a child that has ended; true if it was.
bool reap(pid_t pid);

} // namespace accel::launcher
