#pragma once

#include <string>

namespace accel::detail {

/// A file that only grows. Each `append` is one write, so that a reader or a
/// crash never sees half of it unless the disk is full.
class AppendFile {
 public:
  /// Opens or creates `path` and the folders above it. Throws `c10::Error`
  /// naming the path and the reason, as all members do.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(const std::string& bytes);
  /// Waits until everything is on the disk.
  void sync();
  const std::string& path() const {
    return path_;
  }

 private:
  std::string path_;
  int descriptor_;
};

/// Writes `content` to a file beside `path`, syncs it and renames it: `path`
/// is either the old or the new file, whole.
void replace_file(const std::string& path, const std::string& content);

/// The file's content; empty when there is none.
std::string read_if_exists(const std::string& path);

/// Seconds since 1970.
double now();

} // namespace accel::detail
