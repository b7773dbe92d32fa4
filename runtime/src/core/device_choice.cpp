#include "core/device_choice.h"

#include <c10/util/Exception.h>

#include <map>

namespace accel::detail {
namespace {

/// "2 GPUs (CUDA_VISIBLE_DEVICES=0,1)".
std::string describe_visible(const DeviceSituation& situation) {
  return std::to_string(situation.visible) +
         (situation.visible == 1 ? " GPU" : " GPUs") +
         (situation.visible_devices
              ? " (CUDA_VISIBLE_DEVICES=" + *situation.visible_devices + ")"
              : "");
}

c10::Device gpu(int64_t index) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
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
  if (situation.world_size == 1) {
    // Alone, but perhaps one of several that know nothing of each other.
    return {gpu(situation.local_rank % situation.visible), Transport::kGloo};
  }
  if (backend == "gloo") {
    return {gpu(situation.local_rank % situation.visible), Transport::kGloo};
  }
  TORCH_CHECK(
      situation.local_world_size <= situation.visible || situation.visible == 1,
      "accel: there are ",
      situation.local_world_size,
      " processes on this host, but ",
      describe_visible(situation),
      "; with NCCL each process needs one of its own. Start ",
      situation.visible,
      " on each host (accel launch -n ",
      situation.visible,
      "), let them see more, set ACCELERATE_USE_CPU=1 to train on the CPU, or "
      "ACCEL_BACKEND=gloo to share GPUs, which is slow.");
  TORCH_CHECK(
      situation.without_nccl.empty(),
      "accel: ",
      situation.world_size,
      " processes on GPUs need NCCL, which cannot be used: ",
      situation.without_nccl,
      ". Set ACCELERATE_USE_CPU=1 to train on the CPU, run one process, or set "
      "ACCEL_BACKEND=gloo, which carries everything through the host's memory "
      "and is slow.");
  return {
      gpu(situation.visible == 1 ? 0 : situation.local_rank), Transport::kNccl};
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
        " compute on the same GPU (",
        identities[rank],
        "); with NCCL each process needs one of its own. Start fewer "
        "processes, let each see another one (CUDA_VISIBLE_DEVICES), or set "
        "ACCEL_BACKEND=gloo to share GPUs, which is slow.");
  }
}

} // namespace accel::detail
