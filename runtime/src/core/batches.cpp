#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include "core/runtime.h"
#include "distributed/part.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace accel {

namespace {
/// Distributed, and not merely the same, or a part of a sum, on every process.
bool is_cut(const torch::Tensor& tensor) {
  if (!distributed::is_distributed(tensor)) {
    return false;
  }
  const auto all = distributed::placements(tensor);
  return std::any_of(all.begin(), all.end(), [](const auto& place) {
    return place.is_shard();
  });
}
} // namespace

torch::Tensor Accelerator::distribute(const torch::Tensor& tensor) const {
  const bool nothing_to_cut =
      !tensor.defined() || tensor.dim() == 0 || is_cut(tensor);
  return nothing_to_cut ? tensor : distribute(tensor, 0);
}

torch::Tensor Accelerator::distribute(
    const torch::Tensor& tensor,
    int64_t dim) const {
  TORCH_CHECK(
      dim < tensor.dim() && dim >= -tensor.dim(),
      "accel: distribute cannot cut a tensor of sizes ",
      tensor.sizes(),
      " in dimension ",
      dim,
      ".");
  if (!use_distributed() || tensor.layout() != at::kStrided) {
    return tensor;
  }
  if (!distributed::is_distributed(tensor)) {
    runtime_->check_same_batch("distribute", {tensor});
    runtime_->enter_batch(tensor.size(dim));
  }
  dim = dim < 0 ? dim + tensor.dim() : dim;
  auto axes = runtime_->batch_axes();
  std::vector<distributed::Placement> places(
      axes.size(), distributed::Shard(dim));
  if (auto* axis = runtime_->sequence_axis(); axis != nullptr && tensor.dim() > 1) {
    // The first dimension that is not the samples'.
    axes.push_back(axis);
    places.push_back(distributed::Shard(dim == 0 ? 1 : 0));
  }
  if (axes.empty()) {
    return tensor;
  }
  auto placed = distributed::distribute_tensor(
      tensor, distributed::DeviceMesh(axes), places);
  distributed::set_batch(placed, tensor);
  return placed;
}

torch::Tensor Accelerator::full(const torch::Tensor& tensor) const {
  return tensor.defined() ? distributed::full_tensor(tensor) : tensor;
}

torch::Tensor Accelerator::full_(const torch::Tensor& tensor) const {
  return tensor.defined() ? distributed::full_tensor_(tensor) : tensor;
}

} // namespace accel
