#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace accel::detail {

/// One group over the devices of all processes, to be made.
struct DeviceGroupRequest {
  /// Its keys are this group's only.
  c10::intrusive_ptr<c10d::Store> store;
  int64_t rank = 0;
  int64_t size = 1;
  /// This process's, with an index; the current one when it is called.
  c10::Device device{c10::kCPU};
  /// After which an operation that has not ended ends the process.
  std::chrono::milliseconds timeout{0};
  /// For the backend's own messages.
  std::string name;
};

/// What carries the collectives of tensors that the host cannot reach: for CUDA
/// libaccel_nccl; tests give others.
struct DeviceBackend {
  /// Every process must call it; returns when it is connected.
  std::function<c10::intrusive_ptr<c10d::Backend>(const DeviceGroupRequest&)>
      make;
  /// What names the device in the world; at most 120 characters.
  std::function<std::string(c10::Device)> identity;
  /// Returns when the device has done what this thread has given to it.
  std::function<void(c10::Device)> wait;
  /// Returns when it has done all that this process has given to it. Also right when
  /// the process ends: LibTorch's current streams are a thread's, and are gone before
  /// the destructors of static objects.
  std::function<void(c10::Device)> wait_for_all;
  /// What to look at where it does not connect: a sentence of an error, or empty.
  std::string advice;
  /// Whether it carries this tensor; all others go over Gloo.
  std::function<bool(const at::Tensor&)> takes;
};

/// Carries the tensors of a kind of devices: for CUDA NCCL, from libaccel_nccl,
/// the library that lies beside libaccel where it was built against a LibTorch
/// with CUDA; for others the library that ACCEL_DEVICE_BACKEND names.
/// `why_no_backend`: empty where it can be used, else the reason.
/// `backend_for` throws with it.
ACCEL_API const std::string& why_no_backend(c10::DeviceType type);
ACCEL_API const DeviceBackend& backend_for(c10::DeviceType type);

} // namespace accel::detail
