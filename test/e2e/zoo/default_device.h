#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace zoo {

/// A key that LibTorch keeps for tests, above all others.
constexpr auto kDefaultDeviceKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// While it lives, tensors that this thread makes without saying where are made
/// on `device`, as Python's torch.set_default_device does: models that are
/// written for the CPU so run on devices as if each tensor had been sent there.
/// Tensors over memory of the host (from_blob) stay in it. Nothing without a
/// device.
class DefaultDevice {
 public:
  explicit DefaultDevice(std::optional<c10::Device> device);
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  std::optional<c10::impl::IncludeDispatchKeyGuard> on_;
};

/// While it lives, tensors are made where it is written, for code that is not a
/// model's.
class NoDefaultDevice {
  c10::impl::ExcludeDispatchKeyGuard off_{kDefaultDeviceKey};
};

} // namespace zoo
