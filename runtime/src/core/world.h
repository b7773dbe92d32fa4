#pragma once

#include <accel/detail/communicator.h>

#include "device/backend.h"
#include "device/choice.h"
#include "core/environment.h"
#include "core/operation_log.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace accel::detail {

/// Where a process computes, and what carries its tensors to the others.
struct Placement {
  DeviceChoice choice;
  /// Of NCCL, or what a test puts in its place; null with Gloo. Outlives the
  /// world.
  const DeviceBackend* backend = nullptr;
  /// Which tensors Gloo carries over the host's memory.
  std::function<bool(const at::Tensor&)> staged;
};

/// The placement for a choice, with NCCL where it says so.
Placement make_placement(const DeviceChoice& choice);

/// The processes of this program and the connections between them.
class World {
 public:
  /// Meets the other processes. Throws `c10::Error` where that fails within
  /// `timeout`; every process must call it. The device of `placement` must be
  /// the calling thread's current one.
  static std::unique_ptr<World> connect(
      const Environment& environment,
      const Placement& placement,
      std::chrono::milliseconds timeout);

  /// Cuts the connections where `leave` has not ended them.
  virtual ~World() = default;

  virtual Communicator& communicator(Channel channel) = 0;
  /// Connects the processes of a group, in which this process is, for operators on
  /// distributed tensors. Every process of the program must call it, in the same
  /// order, each with its own group; the groups of one call have no process in
  /// common. The world keeps it, and ends it with the others. Throws `c10::Error`
  /// where that fails within the start's timeout.
  virtual Communicator& connect_group(const OperationGroupPtr& group) = 0;

  /// Whether sums of gradients carry what is `Enclosed`.
  virtual bool carries_enclosed() const {
    return false;
  }

  /// Gives every process the texts of all processes, by rank, while the
  /// communicators are used by somebody else: for one thread beside the
  /// program's. Every process calls it as often, with the same `name` for the
  /// calls of one undertaking and another for the next, so that one that has
  /// failed in the middle disturbs no other. Throws after the timeout, and
  /// where `cancelled` becomes true.
  virtual std::vector<std::string> exchange_beside(
      const std::string& name,
      const std::string& text,
      const std::atomic<bool>& cancelled) = 0;

  /// Returns when process 0 has called it with the same `name`; there at once. For
  /// any thread, while others communicate. Throws after the timeout.
  virtual void follow_first(const std::string& name) = 0;

  /// Waits a bounded time until all processes have called it, so that nobody
  /// cuts a connection that another one is still reading from, then ends the
  /// connections. Gives every process the texts of all, by rank; none where not
  /// all have come. Never throws. No collective may be under way.
  virtual std::vector<std::string> leave(
      const std::string& text = "") noexcept = 0;

  /// Cuts the connections at once, so that processes that wait for this one
  /// stop with an error. For a process that fails. Never throws.
  virtual void abandon() noexcept = 0;
};

std::unique_ptr<World> make_single_process_world();
/// Answers every call itself.
std::unique_ptr<Communicator> make_single_process_communicator();
/// Exported for test/runtime/device.
ACCEL_API std::unique_ptr<World> make_process_world(
    const Environment& environment,
    const Placement& placement,
    std::chrono::milliseconds timeout);

} // namespace accel::detail
