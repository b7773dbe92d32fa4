#include "distributed/unit_member.h"

#include "distributed/axis.h"
#include "distributed/memory_order.h"

#include <ATen/ATen.h>

#include <utility>

namespace accel::distributed {

Part& innermost(Part& part) {
  Part* inner = &part;
  while (Part* next = part_at_rest(inner->local)) {
    inner = next;
  }
  return *inner;
}

bool can_be_member(const Part& part) {
  if (part.view != nullptr || !part.placement.is_shard() || part.placement.cut()) {
    return false;
  }
  const Part* inner = &part;
  while (const Part* next = part_at_rest(inner->local)) {
    inner = next;
    const auto& place = inner->placement;
    if (inner->view != nullptr || !place.is_shard() ||
        place.dim() == part.placement.dim() || inner->whole.defined()) {
      return false;
    }
  }
  const at::Tensor& piece = inner->local;
  if (!is_plain(piece) || piece.is_inference()) {
    return false;
  }
  if (inner != &part || part.placement.dim() != 0) {
    return part.strides.empty() && piece.is_contiguous();
  }
  return piece.is_non_overlapping_and_dense() &&
      (part.strides.empty() || order_of(part.sizes, part.strides).front() == 0);
}

GatheredMember::GatheredMember(Part& p)
    : part(p), dim(p.placement.dim()) {
  const at::Tensor& piece = innermost(p).local;
  element_size = static_cast<int64_t>(piece.element_size());
  assign(sizes, piece.sizes());
  sizes[dim] = p.sizes[dim];
  strides = part_at_rest(p.local) == nullptr ? strides_of(p) : usual_strides(sizes);
}

int64_t GatheredMember::bytes() const {
  int64_t bytes = element_size;
  for (const int64_t n : sizes) {
    bytes *= n;
  }
  return bytes;
}

std::pair<int64_t, int64_t> GatheredMember::bytes_of(int64_t rank) const {
  const int64_t row = sizes[dim] == 0 ? 0 : bytes() / sizes[dim];
  const auto [begin, end] = part.axis->range(sizes[dim], {}, rank);
  return {begin * row, end * row};
}

void put_together(
    const GatheredMember& member,
    const at::Tensor& parts,
    const at::Tensor& whole) {
  const Axis& axis = *member.part.axis;
  const auto elements = parts.view(whole.scalar_type());
  Sizes sizes = member.sizes;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    const auto [begin, end] = axis.range(member.sizes[member.dim], {}, rank);
    const auto [from, to] = member.bytes_of(rank);
    sizes[member.dim] = end - begin;
    whole.narrow(member.dim, begin, end - begin)
        .copy_(elements
                   .narrow(
                       0, from / member.element_size,
                       (to - from) / member.element_size)
                   .view(sizes));
  }
}

at::Tensor in_places_of(
    const at::Tensor& like, at::Tensor plain, const GatheredMember* whole) {
  const Part* part = part_at_rest(like);
  if (part == nullptr) {
    return plain;
  }
  auto inner = in_places_of(part->local, std::move(plain), whole);
  Sizes sizes = part->sizes;
  Sizes strides;
  if (whole == nullptr) {
    strides = strides_of(*part);
  } else {
    sizes[whole->dim] = whole->sizes[whole->dim];
    strides = usual_strides(sizes);
  }
  return make_tensor(
      *part->axis, std::move(inner), part->placement, sizes, strides, /*exact=*/true);
}

} // namespace accel::distributed
