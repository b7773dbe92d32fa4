#pragma once

#include <sys/types.h>

#include "file_descriptor.h"

namespace accel::launcher {

/// A second process that outlives the launcher only if the launcher is
/// killed, and then kills every process group that was announced.
///
/// The kernel kills a dead launcher's own children (PR_SET_PDEATHSIG), but not
/// theirs: without the guardian a training program started through a shell
/// script would go on.
class Guardian {
 public:
  /// Forks; to be made before any thread.
  Guardian();
  /// The processes are gone, or the caller has no more use for them.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void announce_group(pid_t group);
  /// The group is gone, and its number may soon be somebody else's.
  void withdraw_group(pid_t group);

  pid_t pid() const {
    return pid_;
  }

 private:
  FileDescriptor line_;
  pid_t pid_;
};

} // namespace accel::launcher
