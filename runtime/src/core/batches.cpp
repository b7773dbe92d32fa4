#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>

#include "core/runtime.h"
#include "distributed/batch.h"
#include "distributed/part.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

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

namespace {

/// What the last batches have become. The same tensor, unchanged, is given the same
/// distributed tensor as long as that lives: a program may ask whether two of its
/// variables are one tensor (`is_same`), and keep what it has computed of it. Only of
/// parts in the tensor's own memory: they see what the host writes there.
class LastPlaced {
 public:
  torch::Tensor find(
      const torch::Tensor& tensor,
      int64_t dim,
      const void* runtime) {
    if (!may_have(tensor)) {
      return {};
    }
    for (const Entry& entry : entries_) {
      if (entry.runtime != runtime || entry.dim != dim ||
          entry.version != tensor._version() ||
          entry.memory != tensor.const_data_ptr() || !entry.placed) {
        continue;
      }
      const auto from = entry.from->lock();
      auto placed = entry.placed->lock();
      if (from.get() == tensor.unsafeGetTensorImpl() && placed) {
        auto found = torch::Tensor(std::move(placed));
        // What the program has made a leaf is no batch that others read.
        if (!found.requires_grad() && found.sizes() == tensor.sizes() &&
            found.strides() == tensor.strides()) {
          return found;
        }
      }
    }
    return {};
  }

  void add(
      const torch::Tensor& tensor,
      int64_t dim,
      const void* runtime,
      const torch::Tensor& placed) {
    if (may_have(tensor) && distributed::lies_in(placed, tensor)) {
      entries_[next_++ % entries_.size()] = {
          Weak(tensor.getIntrusivePtr()),
          Weak(placed.getIntrusivePtr()),
          tensor._version(),
          tensor.const_data_ptr(),
          dim,
          runtime};
    }
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    std::optional<Weak> from;
    std::optional<Weak> placed;
    int64_t version = 0;
    const void* memory = nullptr; ///< `set_data` gives a tensor another one.
    int64_t dim = 0;
    const void* runtime = nullptr;
  };

  /// One that requires gradients hands them on from each place by itself.
  static bool may_have(const torch::Tensor& tensor) {
    return !tensor.requires_grad() && !tensor.is_inference() &&
        !distributed::is_distributed(tensor);
  }

  std::array<Entry, 8> entries_;
  size_t next_ = 0;
};

LastPlaced& last_placed() {
  // Never destroyed: what runs after main may still distribute.
  static thread_local auto* last = new LastPlaced;
  return *last;
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
  if (auto placed = last_placed().find(tensor, dim, runtime_.get());
      placed.defined()) {
    return placed;
  }
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
  last_placed().add(tensor, dim, runtime_.get(), placed);
  return placed;
}

torch::Tensor Accelerator::full(const torch::Tensor& tensor) const {
  return tensor.defined() ? distributed::full_tensor(tensor) : tensor;
}

torch::Tensor Accelerator::full_(const torch::Tensor& tensor) const {
  return tensor.defined() ? distributed::full_tensor_(tensor) : tensor;
}

} // namespace accel
