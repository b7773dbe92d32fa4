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
  /// Gloo: tensors in the host's memory. Those of a device are copied there and
  /// back, so that several processes may share one; slow.
  kGloo,
  /// NCCL for a GPU's tensors, for those of other devices the library that
  /// ACCEL_DEVICE_BACKEND names; Gloo beside it for the host's.
  kDevice,
};

/// All that the choice of a process's device depends on.
struct DeviceSituation {
  /// The CPU is asked for.
  bool cpu = false;
  /// The kind of devices that there may be (`accelerator_type`).
  c10::DeviceType type = c10::kCUDA;
  /// How many of them this process may use.
  int64_t visible = 0;
  /// What `visible_devices_variable` names, where it is set; for messages.
  std::optional<std::string> visible_devices;
  int64_t local_rank = 0;
  int64_t local_world_size = 1;
  int64_t world_size = 1;
  /// ACCEL_BACKEND, where it is set.
  std::optional<std::string> backend;
  /// Why the devices' own backend cannot be used; empty where it can. Looked at
  /// last.
  std::string without_backend;
};

struct DeviceChoice {
  /// With an index where it is not the CPU.
  c10::Device device{c10::kCPU};
  /// kGloo where there is one process.
  Transport transport = Transport::kGloo;
};

/// The device of this process: the one of its local rank, or the only one that it
/// sees (as where a batch system gives each process its own; that
/// they differ is checked when the processes meet). Throws `c10::Error` that
/// names the numbers and the remedy where there are more processes than devices,
/// where NCCL (or another backend) is needed and not there, and where ACCEL_BACKEND makes no sense.
/// Decides without looking at any device.
ACCEL_API DeviceChoice choose_device(const DeviceSituation& situation);

/// `identities`: what names each process's GPU in the world, by rank. Throws
/// where two processes have the same one, of which NCCL knows nothing better
/// than to fail.
ACCEL_API void check_devices_differ(const std::vector<std::string>& identities);

} // namespace accel::detail
