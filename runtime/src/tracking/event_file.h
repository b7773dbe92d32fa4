#pragma once

#include "append_file.h"

#include <cstdint>
#include <string>
#include <vector>

namespace accel::detail {

/// One value of a TensorBoard event, encoded as `tensorboard.Summary.Value`.
std::string scalar_value(const std::string& tag, float value);
/// A text for the Text tab.
std::string text_value(const std::string& tag, const std::string& text);

/// A TensorBoard event file: TFRecord frames (length, its checksum, data, its
/// checksum), each holding one `tensorboard.Event`.
class EventFile {
 public:
  /// Makes a new file with a unique name in `directory`.
  explicit EventFile(const std::string& directory);

  /// Appends one event with all `values`.
  void write(const std::vector<std::string>& values, int64_t step);
  void sync() {
    file_.sync();
  }
  const std::string& path() const {
    return file_.path();
  }

 private:
  void write_record(const std::string& event);

  AppendFile file_;
};

} // namespace accel::detail
