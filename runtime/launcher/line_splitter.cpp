#include "line_splitter.h"

#include <algorithm>

namespace accel::launcher {

void LineSplitter::end_line(const Receiver& receive, bool progress) {
  // A bar is often drawn as "\r" + text: the first "\r" ends nothing.
  if (!progress || !line_.empty()) {
    receive(line_, progress);
  }
  line_.clear();
}

void LineSplitter::feed(std::string_view bytes, const Receiver& receive) {
  while (!bytes.empty()) {
    if (after_carriage_return_) {
      // "\r\n" is the end of a line, whose '\r' is kept.
      after_carriage_return_ = false;
      if (bytes.front() == '\n') {
        line_ += '\r';
      } else {
        end_line(receive, true);
      }
    }
    const size_t room = kLongest - line_.size();
    const size_t end = bytes.substr(0, room).find_first_of("\r\n");
    const size_t taken = std::min({end, room, bytes.size()});
    line_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (end == std::string_view::npos) {
      if (line_.size() >= kLongest) {
        end_line(receive, false);
      }
      continue;
    }
    if (bytes.front() == '\n') {
      end_line(receive, false);
    } else {
      after_carriage_return_ = true;
    }
    bytes.remove_prefix(1);
  }
}

void LineSplitter::finish(const Receiver& receive) {
  after_carriage_return_ = false;
  if (!line_.empty()) {
    end_line(receive, false);
  }
}

} // namespace accel::launcher
