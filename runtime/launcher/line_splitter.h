#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace accel::launcher {

/// Cuts a stream of bytes into whole lines.
///
/// A line ends with '\n'. Text that ends with a '\r' which no '\n' follows is
/// a state of a progress bar: it is handed out by itself, so that other
/// processes' lines never land in the middle of one. A line that grows beyond
/// `kLongest` bytes is cut there.
class LineSplitter {
 public:
  static constexpr size_t kLongest = size_t{1} << 20;

  /// Called with the text without its end, and whether it is progress.
  using Receiver = std::function<void(std::string_view text, bool progress)>;

  /// Takes the next bytes of the stream.
  void feed(std::string_view bytes, const Receiver& receive);

  /// The stream has ended: hands out what is left, as a line.
  void finish(const Receiver& receive);

 private:
  void end_line(const Receiver& receive, bool progress);

  std::string line_;
  bool after_carriage_return_ = false;
};

} // namespace accel::launcher
