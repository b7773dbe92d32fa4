#pragma once

#include <poll.h>

#include <vector>

#include "channel.h"
#include "file_descriptor.h"

namespace accel::launcher {

/// The launcher's standard input on its way to process 0.
///
/// Process 0 gets it itself, unless it is a terminal: that may be read by the
/// terminal's foreground processes only, and process 0 is in a group of its own.
/// So the launcher reads it, where it is in the foreground, and passes lines on
/// through a pipe: one at a time, when the one before was read, so that of what
/// is typed for the shell at most a line is lost.
class Input {
 public:
  /// What the process is to have as its standard input. It belongs to this, and
  /// is there until `started`.
  int open();
  /// The process has been started.
  void started();

  /// Adds what is to be waited for.
  void append_poll(std::vector<pollfd>& fds);
  /// Something to wait for will be there without a descriptor that tells: the
  /// line to be read, the launcher to come to the foreground.
  bool needs_time() const;
  void handle_poll(const std::vector<pollfd>& fds);

 private:
  /// A line may be read now.
  bool wanted() const;
  void pass_line();

  Channel pipe_;
};

} // namespace accel::launcher
