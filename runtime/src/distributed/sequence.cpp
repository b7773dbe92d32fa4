#include "distributed/sequence.h"

#include "distributed/collectives.h"
#include "distributed/memory_order.h"
#include "distributed/part.h"

#include <accel/distributed/tensor.h>

namespace accel::distributed {

SequenceParallel& SequenceParallel::get() {
  static SequenceParallel one;
  return one;
}

void SequenceParallel::begin(Axis& axis, int64_t dim) {
  axis_ = &axis;
  dim_ = dim;
}

void SequenceParallel::end(const Axis& axis) {
  if (is_on(axis)) {
    axis_ = nullptr;
    parameters_.clear();
  }
}

std::optional<Placement> SequenceParallel::place(c10::IntArrayRef sizes) const {
  const auto dims = static_cast<int64_t>(sizes.size());
  if (axis_ == nullptr || dims < 3 || dim_ + 1 >= dims ||
      sizes[dim_] < axis_->size()) {
    return {};
  }
  return Shard(dim_);
}

void SequenceParallel::add(const at::Tensor& parameter) {
  parameters_.insert_or_assign(
      parameter.unsafeGetTensorImpl(),
      c10::weak_intrusive_ptr<at::TensorImpl>(parameter.getIntrusivePtr()));
}

bool SequenceParallel::knows(const at::Tensor& parameter) const {
  // An address may have been given to another tensor since.
  const auto found = parameters_.find(parameter.unsafeGetTensorImpl());
  return found != parameters_.end() && !found->second.expired();
}

Placement place_along_sequence_axis(const at::Tensor& tensor) {
  const Axis* axis = SequenceParallel::get().axis();
  at::Tensor inner = tensor;
  while (const Part* part = part_of(inner)) {
    if (part->axis == axis) {
      return part->placement;
    }
    inner = part->local;
  }
  return {};
}

at::Tensor in_positions(const at::Tensor& tensor) {
  const auto& sequence = SequenceParallel::get();
  const auto place = sequence.place(tensor.sizes());
  if (!place || place_along_sequence_axis(tensor) == *place) {
    return tensor;
  }
  const Part* part = part_of(tensor);
  if (part != nullptr && part->axis->mesh() != sequence.axis()->mesh()) {
    return tensor;
  }
  return distribute_tensor(tensor, DeviceMesh({sequence.axis()}), {*place});
}

bool scatter_sum(Axis& axis, const at::Tensor& tensor, const char* operation) {
  const auto& sequence = SequenceParallel::get();
  Part* part = part_of(tensor);
  if (!sequence.is_on(axis) || part == nullptr || part->axis != &axis ||
      !part->placement.is_sum() || part->whole.defined()) {
    return false;
  }
  const auto place = sequence.place(part->sizes);
  // The tensor and what asks here have it; views of it would have to follow.
  if (!place || PartPtr::reclaim_copy(part).use_count() != 2) {
    return false;
  }
  for (const Part* view = part; view->view;) {
    Part* parent = view->view->parent.get();
    if (view->view.use_count() != 1 ||
        PartPtr::reclaim_copy(parent).use_count() != 2) {
      return false;
    }
    view = parent;
  }
  part->local = in_order_of(
      redistribute_local(
          axis, part->local, part->placement, *place, part->sizes, operation),
      tensor);
  part->placement = *place;
  part->view.reset();
  part->settled = false;
  return true;
}

} // namespace accel::distributed
