#pragma once

#include <accel/export.h>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <torch/arg.h>

#include <optional>

namespace accel {

/// Counterpart of Accelerate's `AutocastKwargs`.
struct AutocastOptions {
  /// `false` computes in full precision, also inside of mixed precision.
  TORCH_ARG(bool, enabled) = true;
  /// Whether the low-precision copies of weights are kept for the next use in
  /// the same region. Empty: as it is.
  TORCH_ARG(std::optional<bool>, cache_enabled) = std::nullopt;
};

/// Computes matrix products and convolutions in a lower precision while it
/// lives (`torch.autocast`). For the thread that makes it; guards nest.
class ACCEL_API AutocastGuard {
 public:
  /// Does nothing.
  AutocastGuard() = default;

  /// `enabled = false` switches autocast off inside of an outer guard.
  AutocastGuard(
      c10::DeviceType device,
      c10::ScalarType dtype,
      bool enabled = true,
      std::optional<bool> cache_enabled = std::nullopt);

  AutocastGuard(AutocastGuard&& other) noexcept;
  AutocastGuard& operator=(AutocastGuard&&) = delete;
  ~AutocastGuard();

 private:
  bool active_ = false;
  c10::DeviceType device_ = c10::DeviceType::CPU;
  bool previous_enabled_ = false;
  c10::ScalarType previous_dtype_ = c10::ScalarType::Undefined;
  bool previous_cache_ = true;
};

} // namespace accel
