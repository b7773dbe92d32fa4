// libaccel_nccl: the little that needs the headers of CUDA and NCCL. What is
// decided is decided in libaccel, over c10d's interface of a backend, where it
// is tested without a GPU.

#include "device/backend_library.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/util/Exception.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdio>
#include <cstdlib>

#define ACCEL_NCCL_EXPORT extern "C" __attribute__((visibility("default")))

using accel::detail::DeviceGroupRequest;

ACCEL_NCCL_EXPORT int accel_backend_version() {
  return accel::detail::kBackendLibraryVersion;
}

/// c10d's class contains a struct of NCCL's that grows from one minor version
/// to the next, so that another one's headers mean another layout.
ACCEL_NCCL_EXPORT void accel_backend_check(std::string& problem) {
  const uint64_t torch = torch::cuda::nccl::version();
  const auto torch_major = static_cast<unsigned>(torch >> 32);
  const auto torch_minor = static_cast<unsigned>((torch >> 16) & 0xffff);
  if (torch_major != NCCL_MAJOR || torch_minor != NCCL_MINOR) {
    problem =
        "libaccel_nccl was built with the headers of NCCL " +
        std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) +
        ", but LibTorch with " + std::to_string(torch_major) + "." +
        std::to_string(torch_minor) +
        "; build accel again with -DACCEL_NCCL_INCLUDE=DIR, the folder of the "
        "right nccl.h";
  }
}

/// Where a process has died c10d waits for a minute, so that all can write what
/// NCCL did last, before it ends the others. Only who records that needs it.
static void end_at_once() {
  for (const char* records : {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}) {
    if (std::getenv(records) != nullptr) {
      return;
    }
  }
  ::setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/0);
}

ACCEL_NCCL_EXPORT void accel_backend_make(
    const DeviceGroupRequest& request,
    c10::intrusive_ptr<c10d::Backend>& group) {
  end_at_once();
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  options->group_name = request.name;
  auto made = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      request.store,
      static_cast<int>(request.rank),
      static_cast<int>(request.size),
      std::move(options));
  made->setBoundDeviceId(request.device);
  // Now rather than at the first operation, so that what is wrong is said at
  // the start.
  made->eagerConnectSingleDevice(request.device);
  group = std::move(made);
}

/// Unique in the world; "GPU-" and the hexadecimal UUID, as nvidia-smi -L says.
/// NCCL takes processes whose NCCL_HOSTID differ for processes of different hosts,
/// and lets them use one GPU (over the network's transport: slow, for tests).
ACCEL_NCCL_EXPORT void accel_backend_identity(
    c10::Device device, std::string& identity) {
  const auto& uuid = at::cuda::getDeviceProperties(device.index())->uuid;
  identity = "GPU-";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    char text[3];
    std::snprintf(
        text, sizeof text, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    identity += i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
    identity += text;
  }
  const char* host = std::getenv("NCCL_HOSTID");
  if (host != nullptr && *host != '\0') {
    identity += " of NCCL_HOSTID=" + std::string(host);
  }
}

// What libaccel calls is what is defined here.
static_assert(std::is_same_v<
              accel::detail::BackendLibraryVersion,
              decltype(&accel_backend_version)>);
static_assert(std::is_same_v<
              accel::detail::BackendLibraryCheck,
              decltype(&accel_backend_check)>);
static_assert(
    std::is_same_v<accel::detail::BackendMake, decltype(&accel_backend_make)>);
static_assert(std::is_same_v<
              accel::detail::BackendIdentity,
              decltype(&accel_backend_identity)>);
