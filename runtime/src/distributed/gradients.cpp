#include "distributed/gradients.h"

#include "distributed/collectives.h"

#include <ATen/ATen.h>

namespace accel::distributed {

namespace {

/// Whether a tensor is cut or a part of a sum along every axis of its mesh.
bool lies_along_all(const Part* part) {
  int64_t levels = 0;
  const int64_t axes = part->axis->index() + part->axis->further() + 1;
  for (; part != nullptr; part = part_of(part->local)) {
    levels += part->placement.is_sum() ||
        (part->placement.is_shard() && !part->placement.in_blocks());
  }
  return levels == axes;
}

/// This process's entries of it among zeros.
at::Tensor own_entries(const at::Tensor& tensor) {
  Part* part = part_of(tensor);
  if (part == nullptr) {
    return tensor;
  }
  const auto local = own_entries(part->local);
  if (part->placement.is_sum()) {
    return local;
  }
  auto padded = at::zeros(part->sizes, local.options());
  set_own_rows(*part->axis, padded, part->placement, local);
  return padded;
}

} // namespace

at::Tensor part_of_sum(const at::Tensor& tensor) {
  Part* part = tensor.defined() ? part_of(tensor) : nullptr;
  if (part == nullptr) {
    return {};
  }
  const InsideGuard inside;
  if (lies_along_all(part)) {
    return own_entries(tensor);
  }
  const auto local = full_tensor(part->local);
  const auto& placement = part->placement;
  const bool first = part->axis->line() == 0;
  if (placement.is_sum()) {
    return first ? local : at::zeros_like(local);
  }
  if (placement.is_shard()) {
    if (!first) {
      return at::zeros(part->sizes, local.options());
    }
    auto padded = at::zeros(part->sizes, local.options());
    set_own_rows(*part->axis, padded, placement, local);
    return padded;
  }
  const auto sum = redistribute_local(
      *part->axis, local, placement, Partial(), part->sizes, "backward");
  return first ? sum : at::zeros_like(sum);
}

} // namespace accel::distributed
