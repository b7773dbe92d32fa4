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

  /// For whom a process waits before it reads a file.
  enum class Wait {
    kForNobody,
    /// The program has written it, or something in the folder that is listed.
    kForEveryone,
    /// The same on another thread than the one that opened the file, as data are read
    /// ahead: where process 0 reads it, it is as complete as on one device.
    kForFirst
  };

  /// A file is about to be read, or a folder to be listed. `name`, of `kForFirst`: what
  /// the file and the time that it was opened for writing are called, for `completed`.
  Wait read(const std::string& path, std::string& name);
  /// Process 0 has read it: nobody waits again until it is opened anew.
  void completed(const std::string& path, const std::string& name);

 private:
  WrittenFiles() = default;
};

} // namespace accel::detail
