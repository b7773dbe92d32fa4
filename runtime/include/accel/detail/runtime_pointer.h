#pragma once

#include <accel/export.h>

#include <memory>
#include <utility>

namespace accel::detail {

class Runtime;

/// For the Accelerator behind the end of all others.
struct AfterTheEnd {};

/// What an Accelerator shares with others. Null behind the end of the last one, where
/// its use throws `c10::Error`.
class ACCEL_API RuntimePointer {
 public:
  RuntimePointer() = default;
  explicit RuntimePointer(std::shared_ptr<Runtime> runtime)
      : runtime_(std::move(runtime)) {}

  Runtime* operator->() const {
    return get();
  }
  Runtime& operator*() const {
    return *get();
  }
  Runtime* get() const {
    if (!runtime_) {
      has_ended();
    }
    return runtime_.get();
  }
  explicit operator bool() const {
    return runtime_ != nullptr;
  }
  const std::shared_ptr<Runtime>& shared() const {
    return runtime_;
  }

 private:
  [[noreturn]] static void has_ended();

  std::shared_ptr<Runtime> runtime_;
};

} // namespace accel::detail
