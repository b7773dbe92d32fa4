#include "device/choice.h"

#include "device/accelerator.h"

#include <c10/util/Exception.h>

#include <map>

namespace accel::detail {
namespace {

/// "2 GPUs (CUDA_VISIBLE_DEVICES=0,1)".
std::string describe_visible(const DeviceSituation& situation) {
  const char* variable = visible_devices_variable(situation.type);
  return std::to_string(situation.visible) + " " +
         device_noun(situation.type) + (situation.visible == 1 ? "" : "s") +
         (variable != nullptr && situation.visible_devices
              ? std::string(" (") + variable + "=" + *situation.visible_devices + ")"
              : "");
}

c10::Device device_of(const DeviceSituation& situation, int64_t index) {
  return {situation.type, static_cast<c10::DeviceIndex>(index)};
}

/// What carries the tensors of such devices.
std::string backend_noun(c10::DeviceType type) {
  return type == c10::kCUDA ? "NCCL" : "a backend of their own";
}

} // namespace

DeviceChoice choose_device(const DeviceSituation& situation) {
  const auto& backend = situation.backend;
  TORCH_CHECK(
      !backend || *backend == "nccl" || *backend == "gloo",
      "accel: the environment variable ACCEL_BACKEND is '",
      *backend,
      "', but must be nccl or gloo. Unset it to let accel choose.");
  if (situation.cpu || situation.visible == 0) {
    TORCH_CHECK(
        backend != "nccl",
        "accel: ACCEL_BACKEND is nccl, which is for GPUs, but this process "
        "computes on the CPU, because ",
        situation.cpu
            ? "it was told to (ACCELERATE_USE_CPU or the option cpu). Unset "
              "one of the two."
            : "LibTorch finds " + describe_visible(situation) +
                  ". Look at the driver (nvidia-smi) and at what the program "
                  "is "
                  "linked with (docs/gpu.md), or unset ACCEL_BACKEND.");
    return {};
  }
  TORCH_CHECK(
      backend != "nccl" || situation.type == c10::kCUDA,
      "accel: ACCEL_BACKEND is nccl, which is for GPUs, but this process "
      "computes on one of ",
      describe_visible(situation),
      ". Unset ACCEL_BACKEND.");
  if (situation.world_size == 1) {
    // Alone, but perhaps one of several that know nothing of each other.
    return {device_of(situation, situation.local_rank % situation.visible), Transport::kGloo};
  }
  if (backend == "gloo") {
    return {device_of(situation, situation.local_rank % situation.visible), Transport::kGloo};
  }
  TORCH_CHECK(
      situation.local_world_size <= situation.visible || situation.visible == 1,
      "accel: there are ",
      situation.local_world_size,
      " processes on this host, but ",
      describe_visible(situation),
      "; with ",
      backend_noun(situation.type),
      " each process needs one. Start ",
      situation.visible,
      " on each host (accel launch -n ",
      situation.visible,
      "), let them see more, set ACCELERATE_USE_CPU=1 to train on the CPU, or "
      "ACCEL_BACKEND=gloo to share them, which is slow.");
  TORCH_CHECK(
      situation.without_backend.empty(),
      "accel: ",
      situation.world_size,
      " processes on ",
      device_noun(situation.type),
      "s need ",
      backend_noun(situation.type),
      ", which cannot be used: ",
      situation.without_backend,
      ". Set ACCELERATE_USE_CPU=1 to train on the CPU, run one process, or set "
      "ACCEL_BACKEND=gloo, which carries everything through the host's memory "
      "and is slow.");
  return {
      device_of(situation, situation.visible == 1 ? 0 : situation.local_rank),
      Transport::kDevice};
}

void check_devices_differ(const std::vector<std::string>& identities) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    const auto [owner, first] = owners.emplace(identities[rank], rank);
    TORCH_CHECK(
        first,
        "accel: processes ",
        owner->second,
        " and ",
        rank,
        " compute on the same device (",
        identities[rank],
        "); each process needs one of its own. Start fewer "
        "processes, let each see another one (CUDA_VISIBLE_DEVICES), or set "
        "ACCEL_BACKEND=gloo to share them, which is slow.");
  }
}

} // namespace accel::detail
