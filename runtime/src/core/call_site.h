#pragma once

#include <array>
#include <string>

namespace accel::detail {

/// Where in the program something was called: cheap to remember, and only
/// looked up when somebody asks.
class CallSite {
 public:
  /// The calls that lead here.
  static CallSite here();

  /// "train.cpp:88 (train_epoch)" for the innermost call that is the
  /// program's own: not in libraries of accel, LibTorch or the system, nor in
  /// their headers. Without debug information "train_epoch in ./train
  /// (0x1234)"; empty where nothing is known. Runs `addr2line` where there is
  /// one; takes a second at most.
  std::string describe() const;

  /// Whether both were reached by the same calls, and a number for tables.
  bool operator==(const CallSite& other) const {
    return count_ == other.count_ && addresses_ == other.addresses_;
  }
  size_t hash() const;

 private:
  /// Half a microsecond each; the call is not far up.
  static constexpr size_t kDepth = 24;
  std::array<void*, kDepth> addresses_{};
  int count_ = 0;
};

} // namespace accel::detail
