#include "distributed/batch.h"
#include "distributed/collectives.h"

#include <ATen/ATen.h>

// Batches that a program writes to. What it writes is seen by all that share the
// memory, on every process: the batch is settled. Whoever only reads still gets it cut.

namespace accel::distributed {

bool lies_in(const at::Tensor& tensor, const at::Tensor& whole) {
  const Part* part = part_of(tensor);
  return part != nullptr ? lies_in(part->local, whole)
                         : tensor.has_storage() && tensor.is_alias_of(whole);
}

namespace {

/// Whether the local tensor can be a view of what was cut. Along several axes only of
/// whole rows: of an inner one it is not known that the memory is the program's, and
/// columns cannot be viewed otherwise where rows can (rules/views.cpp).
bool can_lie(const at::Tensor& tensor, bool one_axis) {
  const Part* part = part_of(tensor);
  return part == nullptr ||
      (!part->placement.in_blocks() &&
       (one_axis || part->placement.dim() == 0) &&
       can_lie(part->local, one_axis));
}

/// A batch lies where `whole`, which it was cut from, does: a program may ask where in
/// its data that is, and a view with gaps is copied where one without is not.
void lie_as(const at::Tensor& whole, const at::Tensor& tensor) {
  Part* part = part_of(tensor);
  if (!lies_in(tensor, whole)) {
    if (!can_lie(tensor, part_of(part->local) == nullptr)) {
      return;
    }
    const auto rows = own_rows(*part->axis, whole, part->placement);
    if (part_of(part->local) != nullptr) {
      lie_as(rows, part->local);
    } else {
      part->local = rows;
    }
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      whole.sizes(), whole.strides().vec(), whole.storage_offset());
}

} // namespace

void set_batch(const at::Tensor& tensor, const at::Tensor& whole) {
  Part* part = part_of(tensor);
  if (part == nullptr || !part->placement.is_shard()) {
    return;
  }
  part->samples = static_cast<int8_t>(part->placement.dim());
  if (whole.defined() && part_of(whole) == nullptr && whole.has_storage()) {
    const InsideGuard inside;
    part->whole = whole.detach();
    part->borrows = true;
    lie_as(part->whole, tensor);
  }
}

void keep_cut(Part* part) {
  Part* root = root_of(part);
  if (!root->settled && root->placement.is_shard() && root->unit == nullptr) {
    root->samples = static_cast<int8_t>(root->placement.dim());
  }
}

void give_back(Part* part) {
  const InsideGuard inside;
  Part* root = root_of(part);
  const auto memory = root->whole.storage();
  // This one, that of `whole`, and those of the local tensors that are views of it.
  size_t ours = 2;
  for (Part* p = part; p != nullptr; p = p->view ? p->view->parent.get() : nullptr) {
    // Along further axes the local tensor is that of the innermost.
    at::Tensor own = p->local;
    while (Part* inner = part_of(own)) {
      own = inner->local;
    }
    ours += own.has_storage() && own.storage().is_alias_of(memory) ? 1 : 0;
  }
  if (memory.use_count() <= ours) {
    root->whole.reset();
    root->borrows = false;
  }
}

namespace {

/// The value of a settled root or a view of it, cut where the view can be; undefined
/// where nothing is cut.
at::Tensor in_parts(const Part& part, Axis& axis) {
  if (part.view != nullptr) {
    const auto parent = in_parts(*part.view->parent, axis);
    if (!parent.defined()) {
      return {};
    }
    const auto view = part.view->of(parent);
    const Part* its = part_of(view);
    return its != nullptr && its->placement.is_shard() ? view : at::Tensor();
  }
  const auto& whole = part.local;
  if (!is_plain(whole) || part.samples >= whole.dim() ||
      whole.size(part.samples) < axis.size()) {
    return {};
  }
  const auto place = Shard(part.samples);
  auto cut = make_tensor(
      axis, own_rows(axis, whole, place), place, whole.sizes(), whole.strides(),
      /*exact=*/true);
  // A view that cannot be cut is one of the value that is there.
  part_of(cut)->whole = whole;
  return cut;
}

} // namespace

at::Tensor cut_again(const at::Tensor& tensor, Axis& axis) {
  Part* part = tensor.defined() ? part_of(tensor) : nullptr;
  if (part == nullptr || !part->settled || part->axis != &axis ||
      root_of(part)->samples < 0) {
    return tensor;
  }
  const auto cut = in_parts(*part, axis);
  return cut.defined() ? cut : tensor;
}

} // namespace accel::distributed
