#pragma once

#include <accel/export.h>

#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace accel {

/// The scope of `Accelerator::maybe_context_parallel`: while it lives, the tensors
/// that it was given are shared out along their sequences. Moved, not copied. Its end
/// is collective, where it has shared something out.
class ACCEL_API ContextParallelGuard {
 public:
  /// Shares nothing out.
  ContextParallelGuard() = default;
  ~ContextParallelGuard() noexcept(false);
  ContextParallelGuard(ContextParallelGuard&& other) noexcept
      : restored_(std::exchange(other.restored_, {})),
        exceptions_(other.exceptions_) {}
  ContextParallelGuard(const ContextParallelGuard&) = delete;
  ContextParallelGuard& operator=(const ContextParallelGuard&) = delete;
  ContextParallelGuard& operator=(ContextParallelGuard&&) = delete;

 private:
  friend class Accelerator;
  explicit ContextParallelGuard(std::vector<torch::Tensor> restored)
      : restored_(std::move(restored)) {}

  std::vector<torch::Tensor> restored_;
  /// Those on their way when the scope began.
  int exceptions_ = std::uncaught_exceptions();
};

} // namespace accel
