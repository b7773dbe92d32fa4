#include "interleaver.h"

#include <algorithm>
#include <utility>

namespace accel::launcher {
namespace {

constexpr std::string_view kEraseToEndOfLine = "\x1b[K";

} // namespace

void Interleaver::bytes(int fd, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  ended_ = false;
  if (unfinished_ && !waiting_.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      sink_(fd, bytes);
      return;
    }
    sink_(fd, bytes.substr(0, end + 1));
    bytes.remove_prefix(end + 1);
    unfinished_ = false;
  }
  write_waiting();
  if (bytes.empty()) {
    return;
  }
  if (std::exchange(progress_, false)) {
    sink_(fd, kEraseToEndOfLine);
  }
  sink_(fd, bytes);
  unfinished_ = bytes.back() != '\n';
}

void Interleaver::line(
    int fd, std::string_view text, Clock::time_point latest) {
  if (waiting_.empty() || waiting_.back().fd != fd) {
    waiting_.push_back({fd, {}});
  }
  std::string& waiting = waiting_.back().text;
  const size_t before = waiting.size();
  if (std::exchange(progress_, false)) {
    waiting += kEraseToEndOfLine;
  }
  waiting += text;
  waiting += '\n';
  waiting_bytes_ += waiting.size() - before;
  deadline_ = std::min(deadline_, latest);
}

void Interleaver::progress(int fd, std::string_view text) {
  if (unfinished_ && !ended_) {
    return;
  }
  release();
  std::string state;
  if (std::exchange(unfinished_, false)) {
    state += '\n';
  }
  if (std::exchange(progress_, true)) {
    state += kEraseToEndOfLine;
  }
  state += text;
  state += '\r';
  sink_(fd, state);
}

void Interleaver::settle(Clock::time_point now) {
  if (!unfinished_ || ended_ || now >= deadline_ || waiting_bytes_ > kMostWaiting) {
    release();
  }
}

void Interleaver::release() {
  if (waiting_.empty()) {
    return;
  }
  if (std::exchange(unfinished_, false)) {
    waiting_.front().text.insert(0, 1, '\n');
  }
  write_waiting();
}

void Interleaver::end_of_bytes() {
  ended_ = true;
  release();
}

void Interleaver::write_waiting() {
  for (const Waiting& waiting : waiting_) {
    sink_(waiting.fd, waiting.text);
  }
  waiting_.clear();
  waiting_bytes_ = 0;
  deadline_ = Clock::time_point::max();
}

} // namespace accel::launcher
