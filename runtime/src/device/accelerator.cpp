#include "device/accelerator.h"

#include "core/environment.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace accel::detail {
namespace {

std::optional<c10::DeviceType> named_type(const std::string& name) {
  std::optional<c10::DeviceType> type;
  try {
    type = c10::Device(name).type();
  } catch (const c10::Error&) {
    // Said below.
  }
  TORCH_CHECK(
      type == c10::kCPU || (type && count_devices(*type) > 0),
      "accel: the environment variable ACCEL_DEVICE_TYPE is '",
      name,
      "', but ",
      type ? "LibTorch finds no such device"
           : "LibTorch knows no such kind of device",
      ". Name one that is there (cuda, xpu, mps, or the name of a device that "
      "a library registers, which must be loaded), cpu to stay on the CPU, or "
      "unset it.");
  return type == c10::kCPU ? std::nullopt : type;
}

} // namespace

std::optional<c10::DeviceType> accelerator_type() {
  if (const auto name = get_environment("ACCEL_DEVICE_TYPE")) {
    return named_type(*name);
  }
  const auto type = at::getAccelerator(/*checked=*/false);
  return type && count_devices(*type) > 0 ? type : std::nullopt;
}

int64_t count_devices(c10::DeviceType type) {
  return type != c10::kCPU && c10::impl::hasDeviceGuardImpl(type)
      ? c10::impl::getDeviceGuardImpl(type)->deviceCount()
      : 0;
}

const char* visible_devices_variable(c10::DeviceType type) {
  switch (type) {
    case c10::kCUDA:
      return "CUDA_VISIBLE_DEVICES";
    case c10::kXPU:
      return "ZE_AFFINITY_MASK";
    default:
      return nullptr;
  }
}

std::string device_noun(c10::DeviceType type) {
  return type == c10::kCUDA
      ? "GPU"
      : c10::DeviceTypeName(type, /*lower_case=*/true) + " device";
}

c10::DispatchKey autograd_key(c10::DeviceType type) {
  switch (type) {
    case c10::kCUDA:
      return c10::DispatchKey::AutogradCUDA;
    case c10::kXPU:
      return c10::DispatchKey::AutogradXPU;
    case c10::kMPS:
      return c10::DispatchKey::AutogradMPS;
    case c10::kPrivateUse1:
      return c10::DispatchKey::AutogradPrivateUse1;
    case c10::kCPU:
      return c10::DispatchKey::AutogradCPU;
    default:
      return c10::DispatchKey::AutogradOther;
  }
}

at::Generator default_generator(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

void use_device(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  }
}

void wait_for_current_stream(c10::Device device) {
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    guard.synchronizeStream(guard.getStream(device));
  }
}

void wait_for_all_streams(c10::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

} // namespace accel::detail
