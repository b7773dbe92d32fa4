#pragma once

#include <accel/export.h>

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::detail {

/// What carries the collectives.
enum class Transport {
  /// Gloo: tensors in the host's memory. Those of a GPU are copied there and
  /// back, so that several processes may share one; slow.
  kGloo,
  /// NCCL for the GPU's tensors, Gloo beside it for the host's.
  kNccl,
};

/// All that the choice of a process's device depends on.
struct DeviceSituation {
  /// The CPU is asked for.
  bool cpu = false;
  /// GPUs that this process may use (`torch::cuda::device_count()`).
  int64_t visible = 0;
  /// CUDA_VISIBLE_DEVICES, where it is set; for messages.
  std::optional<std::string> visible_devices;
  int64_t local_rank = 0;
  int64_t local_world_size = 1;
  int64_t world_size = 1;
  /// ACCEL_BACKEND, where it is set.
  std::optional<std::string> backend;
  /// Why NCCL cannot be used; empty where it can. Looked at last.
  std::string without_nccl;
};

struct DeviceChoice {
  /// With an index where it is a GPU.
  c10::Device device{c10::kCPU};
  /// kGloo where there is one process.
  Transport transport = Transport::kGloo;
};

/// The device of this process: with NCCL the GPU of its local rank, or the only
/// one that it sees (as where a batch system gives each process its own; that
/// they differ is checked when the processes meet). Throws `c10::Error` that
/// names the numbers and the remedy where there are more processes than GPUs,
/// where NCCL is needed and not there, and where ACCEL_BACKEND makes no sense.
/// Decides without looking at any device.
ACCEL_API DeviceChoice choose_device(const DeviceSituation& situation);

/// `identities`: what names each process's GPU in the world, by rank. Throws
/// where two processes have the same one, of which NCCL knows nothing better
/// than to fail.
ACCEL_API void check_devices_differ(const std::vector<std::string>& identities);

} // namespace accel::detail
