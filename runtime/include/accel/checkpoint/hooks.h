#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accel {

/// Code that takes part in saving or loading. It may take models out of the
/// list, on all processes alike, and save or load them itself: files that it
/// writes into the directory are part of the checkpoint.
using CheckpointHook = std::function<void(
    std::vector<torch::nn::Module*>& models,
    const std::string& directory)>;

/// Takes a hook back. Dropping the handle leaves the hook in place.
class CheckpointHookHandle {
 public:
  explicit CheckpointHookHandle(std::function<void()> remove)
      : remove_(std::move(remove)) {}
  /// The hook is not called any more.
  void remove() {
    remove_();
  }

 private:
  std::function<void()> remove_;
};

} // namespace accel
