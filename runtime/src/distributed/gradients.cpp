#include "distributed/gradients.h"

#include "distributed/collectives.h"

#include <ATen/ATen.h>

namespace accel::distributed {

at::Tensor part_of_sum(const at::Tensor& tensor) {
  Part* part = tensor.defined() ? part_of(tensor) : nullptr;
  if (part == nullptr) {
    return {};
  }
  const InsideGuard inside;
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
