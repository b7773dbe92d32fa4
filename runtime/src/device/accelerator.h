#pragma once

#include <accel/export.h>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

#include <cstdint>
#include <optional>
#include <string>

/// What accel asks about devices other than the CPU: all of it by LibTorch's own
/// interfaces for accelerators, so that it holds for CUDA, XPU, MPS and what has
/// been registered as PrivateUse1 alike. What is CUDA's only is in
/// runtime/nccl.

namespace accel::detail {

/// The kind of devices that processes compute on unless they are told to stay on
/// the CPU: what ACCEL_DEVICE_TYPE names ("cuda", "xpu", "cpu", the name that a
/// PrivateUse1 device is registered with), else LibTorch's accelerator; empty
/// where there is none. Throws where a kind is named that is not there.
ACCEL_API std::optional<c10::DeviceType> accelerator_type();

/// How many of them this process may use; 0 for the CPU.
ACCEL_API int64_t count_devices(c10::DeviceType type);

/// The environment variable that says which of them a process sees:
/// CUDA_VISIBLE_DEVICES for CUDA; null where the kind has none.
const char* visible_devices_variable(c10::DeviceType type);

/// "GPU" for CUDA, else "cpu", "xpu", …, as messages say it.
std::string device_noun(c10::DeviceType type);

/// Autograd's key of tensors on such devices.
c10::DispatchKey autograd_key(c10::DeviceType type);

/// That torch::manual_seed seeds, of a device with an index.
at::Generator default_generator(c10::Device device);

/// Makes `device` the calling thread's current one; nothing for the CPU.
/// LibTorch keeps a current device for each thread.
void use_device(c10::Device device);

/// Returns when the device has done what this thread has given to it, on the
/// current stream; at once for the CPU.
void wait_for_current_stream(c10::Device device);

/// The same, whatever stream of the device it was given to.
void wait_for_all_streams(c10::Device device);

} // namespace accel::detail
