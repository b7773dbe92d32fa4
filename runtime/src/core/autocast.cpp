#include <accel/autocast.h>

#include <ATen/autocast_mode.h>

#include <utility>

namespace accel {

AutocastGuard::AutocastGuard(
    c10::DeviceType device,
    c10::ScalarType dtype,
    bool enabled,
    std::optional<bool> cache_enabled)
    : active_(true),
      device_(device),
      previous_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_dtype_(at::autocast::get_autocast_dtype(device)),
      previous_cache_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_cache_enabled(
      cache_enabled.value_or(previous_cache_));
  at::autocast::increment_nesting();
}

AutocastGuard::AutocastGuard(AutocastGuard&& other) noexcept
    : active_(std::exchange(other.active_, false)),
      device_(other.device_),
      previous_enabled_(other.previous_enabled_),
      previous_dtype_(other.previous_dtype_),
      previous_cache_(other.previous_cache_) {}

AutocastGuard::~AutocastGuard() {
  if (!active_) {
    return;
  }
  // The outermost guard drops the copies of the weights, which an optimizer
  // step is about to make stale.
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(device_, previous_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_dtype_);
  at::autocast::set_autocast_cache_enabled(previous_cache_);
}

} // namespace accel
