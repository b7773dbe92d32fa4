#pragma once

#include "distributed/recompute.h"

#include <accel/distributed/placement.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace accel::distributed {

/// Whether an element is taken out of a vector for the host to read: `g[i].item()`. Where
/// each process has a term of it every element would be added up by itself; the whole vector
/// is instead, once, and kept for the next ones. Not in a graph, where an element may be a
/// loss that is added up at the end, and not of vectors that are long for it.
inline bool is_read_by_elements(const at::Tensor& vector, const Placement& place) {
  constexpr int64_t kMost = 1 << 20;
  return place.is_partial() && vector.dim() == 1 && vector.numel() <= kMost &&
      !(at::GradMode::is_enabled() && vector.requires_grad()) && !in_backward();
}

} // namespace accel::distributed
