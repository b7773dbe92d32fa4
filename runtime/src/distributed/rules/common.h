#pragma once

#include "distributed/call.h"

// What rules of several families need.

namespace accel::distributed {

inline Sizes sizes_of(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

/// A dimension counted from the front.
inline int64_t wrapped(int64_t dim, int64_t dims) {
  return dim < 0 ? dim + dims : dim;
}

/// `out=` overloads: the whole tensors do them.
inline bool has_out(const Call& call) {
  return !call.info().writes.empty() && !call.info().is_in_place;
}

/// Whether argument i is cut in another dimension than `dim` (a dimension of
/// this argument).
inline bool cut_beside(const Call& call, size_t i, int64_t dim) {
  const auto place = call.place(i);
  return place.is_shard() && place.dim() != dim;
}

/// The whole sizes of a result whose cut dimension has `n` rows, as a list that
/// LibTorch takes, with this process's rows there.
inline std::vector<int64_t> local_sizes(
    const Call& call,
    c10::IntArrayRef sizes,
    const Placement& place) {
  auto local = sizes.vec();
  if (place.is_shard()) {
    local[place.dim()] = call.rows(sizes[place.dim()], place);
  }
  return local;
}

/// Whether a local tensor is cut in dimension `dim` along a further axis, too.
/// Its rows are not as many on all processes then: nothing may be decided by
/// them.
inline bool cut_further(const at::Tensor& local, int64_t dim) {
  for (Part* part = part_of(local); part != nullptr;
       part = part_of(part->local)) {
    if (part->placement.is_shard(dim)) {
      return true;
    }
  }
  return false;
}

/// Replaces the list of tensors at argument i.
inline void use_list(Call& call, size_t i, const Placement& to) {
  auto list = call.tensors(i);
  for (auto& tensor : list) {
    tensor = call.local_as(tensor, to);
  }
  call.set(i, std::move(list));
}

} // namespace accel::distributed
