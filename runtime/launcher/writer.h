#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "file_descriptor.h"

namespace accel::launcher {

/// Writes to the launcher's own standard output and standard error, in the
/// order of the calls, on a thread of its own.
///
/// A reader that stopped reading (a pager, a terminal under Ctrl-S) blocks
/// that thread only: signals and dying processes are still attended to. The
/// producer is expected to stop when `congested()`, and `wakeup_fd()` becomes
/// readable when it may go on.
class Writer {
 public:
  Writer();
  /// Waits until everything is written; see `abandon`.
  ~Writer();

  /// Appends to what is to be written. Never blocks. Dropped when an earlier
  /// write to the same descriptor failed.
  void write(int fd, std::string_view bytes);

  /// True while more than about 4 MiB wait to be written.
  bool congested() const;

  /// True when nothing waits to be written.
  bool idle() const;

  /// The errno of the first write to `fd` that failed; 0 if none has.
  int error(int fd) const;

  /// Readable after a change of `congested()`, `idle()` or `error()`.
  int wakeup_fd() const {
    return wakeup_.get();
  }

  /// Resets `wakeup_fd()`.
  void acknowledge();

 private:
  struct Block {
    int fd;
    std::string bytes;
  };

  void run();
  void wake_up();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> queue_;
  size_t waiting_bytes_ = 0;
  std::map<int, int> errors_;
  bool stop_ = false;
  FileDescriptor wakeup_;
  std::thread thread_;
};

} // namespace accel::launcher
