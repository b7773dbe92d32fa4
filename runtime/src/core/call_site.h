#pragma once

#include <array>
#include <string>

namespace accel::detail {

/// Where in the program something was called: cheap to remember, and only
/// looked up when somebody asks.
class CallSite {
 public:
  /// The program's own calls that lead here, the innermost ones: not those in
  /// libraries of accel, LibTorch or the system, however many lie between.
  static CallSite here();

  /// "train.cpp:88 (train_epoch)" for the innermost call that is not in headers
  /// of LibTorch or accel either. Without debug information (-g) "train_epoch
  /// in ./train (0x1234)", without addr2line, which is run for it, or in a
  /// stripped program "./train (0x1234)"; empty where nothing is known. Takes a
  /// second at most.
  std::string describe() const;
  /// Whether what `describe` has returned names a line.
  static bool has_line(const std::string& description);

  /// Whether both were reached by the same calls, and a number for tables.
  bool operator==(const CallSite& other) const {
    return count_ == other.count_ && addresses_ == other.addresses_;
  }
  size_t hash() const;

 private:
  static constexpr size_t kDepth = 8;
  std::array<void*, kDepth> addresses_{};
  int count_ = 0;
};

} // namespace accel::detail
