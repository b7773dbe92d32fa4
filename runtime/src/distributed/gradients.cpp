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
  if (placement.is_sum()) {
    return local;
  }
  if (placement.is_shard()) {
    auto padded = at::zeros(part->sizes, local.options());
    const auto [begin, end] = part->axis->range(
        part->sizes[placement.dim()], placement.cut());
    padded.narrow(placement.dim(), begin, end - begin).copy_(local);
    return padded;
  }
  return redistribute_local(
      *part->axis, local, placement, Partial(), part->sizes, "backward");
}

int64_t axis_size_of(const at::Tensor& tensor) {
  return part_of(tensor)->axis->size();
}

} // namespace accel::distributed
