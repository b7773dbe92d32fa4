#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <cstdint>

// Parts of tensors on a device whose memory lies on the host while nobody computes with
// them.

namespace accel::distributed {

struct Part;

/// Beside a part that may lie on the host: the host's memory, and whether that is what
/// the part has now. `part_of` brings it to the device, so that nobody computes with what
/// is away; `part_at_rest` is for those who only ask where it lies. It goes back at
/// moments at which no operator is under way: between two updates of an optimizer, after
/// a step, and when what its unit has gathered is dropped.
struct OnHost {
  OnHost(Part& owner, at::Tensor host_memory);
  ~OnHost();
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

  /// Whether it is the part's local tensor that lies on the host.
  bool is_away() const {
    return brought == nullptr;
  }

  Part& part;
  const c10::Device device;
  /// As large as the local tensor, and in its order. What it had when it was brought,
  /// while it is not away.
  at::Tensor memory;
  /// The local tensor on the device: where the part has another one since, that is
  /// nothing of this.
  const c10::TensorImpl* brought = nullptr;
  /// Its version then, and whether an operator has written to it since.
  int64_t version = 0;
  bool written = false;
};

/// A part may lie on the host from now on, and does: `memory` has its values, sizes and
/// strides. It is a root, which nobody shares memory with, of a plain tensor on a device.
ACCEL_API void keep_on_host(Part& part, at::Tensor memory);

/// Puts a part that was brought back into its memory on the host. Leaves one whose memory
/// somebody else has, too, or whose family has been gathered; one that has another local
/// tensor since has no place on the host any more. Waits for the device.
ACCEL_API void put_away(Part& part);

/// The same of all parts that were brought.
ACCEL_API void put_away_all();

/// The same of one that nobody has written to since it was brought, of which nothing need
/// be copied.
void put_away_unwritten(Part& part) noexcept;

/// Brings one that is away.
ACCEL_API void bring(Part& part);

} // namespace accel::distributed
