#pragma once

#include <string>

namespace accel::detail {

/// The files that this program has opened through `main_process_path`, and those
/// that it has asked for through `readable_path`, also before it opened them: no
/// process may find a file that another one, which is further on, has made. Kept
/// alike on all processes, which open and read the same files in the same order,
/// so that all of them come to the same answer about whether to wait. Only used
/// with several processes.
class WrittenFiles {
 public:
  static WrittenFiles& get();

  /// A file is about to be opened for writing. True: all must wait first, since
  /// some may still be about to read it, or to list a folder that it is in.
  bool opened(const std::string& path);

  /// A file is about to be read, or a folder to be listed. True: the program has
  /// written it, or something in it, so that all must wait first. Throws `c10::Error`
  /// if it was opened on another thread.
  bool read(const std::string& path);

 private:
  WrittenFiles() = default;
};

} // namespace accel::detail
