#pragma once

#include <accel/export.h>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace accel {

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
      bool enabled = true);

  AutocastGuard(AutocastGuard&& other) noexcept;
  AutocastGuard& operator=(AutocastGuard&&) = delete;
  ~AutocastGuard();

 private:
  bool active_ = false;
  c10::DeviceType device_ = c10::DeviceType::CPU;
  bool previous_enabled_ = false;
  c10::ScalarType previous_dtype_ = c10::ScalarType::Undefined;
};

} // namespace accel
