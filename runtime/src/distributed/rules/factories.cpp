#include "distributed/memory_order.h"
#include "distributed/rules/common.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

// New tensors shaped like others, and conversions of dtype, device and layout.
// What is shaped like a part is a part. Of a part of a sum only what is about
// to be overwritten or is zero stays one; all else is plain.

namespace accel::distributed::factories_rules {
namespace {

/// A dense tensor is asked for: sparse ones are made of whole tensors.
bool is_dense(const Call& call) {
  const int layout = call.index("layout");
  return layout < 0 || call.at(layout).isNone() ||
      call.at(layout).toLayout() == at::kStrided;
}

/// The order in memory that a tensor like `self` has: its own unless another is
/// asked for; empty for that of the dimensions.
Sizes order_like(const Call& call, const at::Tensor& self) {
  const int format = call.index("memory_format");
  switch (format < 0 || call.at(format).isNone()
              ? at::MemoryFormat::Preserve
              : call.at(format).toMemoryFormat()) {
    case at::MemoryFormat::Preserve:
      return {self.strides().begin(), self.strides().end()};
    case at::MemoryFormat::ChannelsLast:
    case at::MemoryFormat::ChannelsLast3d:
      return channels_last(self.sizes());
    default:
      return {};
  }
}

/// zeros_like, ones_like, full_like: of a part of a sum every process makes the
/// whole tensor.
bool filled_like(Call& call) {
  if (has_out(call) || call.place(0).is_replicate() || !is_dense(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto order = order_like(call, self);
  call.use_local(0);
  call.run();
  if (place.is_shard()) {
    call.place_result(0, place, self.sizes(), order);
  }
  return true;
}

/// empty_like: what is about to be filled from a part of a sum is one.
bool empty_like(Call& call) {
  if (!call.place(0).is_sum()) {
    return filled_like(call);
  }
  if (has_out(call) || !is_dense(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  call.use_local(0);
  call.run();
  call.place_result(0, Partial(), self.sizes());
  return true;
}

/// new_zeros, new_empty and others: a new tensor that has as many rows in the
/// cut dimension goes with the tensors that it will meet (the gradient of
/// `gather` is scattered into it). Any place would be right.
bool new_tensor(Call& call) {
  if (has_out(call) || call.place(0).is_replicate() || !is_dense(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const Sizes sizes = call.integers(1);
  const bool goes_with = place.is_shard() &&
      place.dim() < static_cast<int64_t>(sizes.size()) &&
      sizes[place.dim()] == self.size(place.dim());
  call.use_local(0);
  if (goes_with) {
    call.set(1, local_sizes(call, sizes, place));
  } else if (part_of(call.tensor(0)) != nullptr) {
    // Along further axes the local sizes say nothing.
    call.set(0, at::empty({0}, call.tensor(0).options()));
  }
  call.run();
  if (goes_with) {
    call.place_result(0, place, sizes);
  }
  return true;
}

/// new_empty_strided: autograd makes gradients of their leaf's strides by it,
/// and fills them. The part is laid out in the same order.
bool new_empty_strided(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const Sizes sizes = call.integers(1);
  const Sizes strides = call.integers(2);
  if (has_out(call) || place.is_replicate() || !is_dense(call)) {
    return false;
  }
  if (place.is_sum() && self.sizes() == c10::IntArrayRef(sizes)) {
    call.use_local(0);
    call.run();
    call.place_result(0, place, sizes);
    return true;
  }
  Sizes order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[a] < strides[b];
  });
  bool dense = place.is_shard() && self.sizes() == c10::IntArrayRef(sizes);
  std::vector<int64_t> local(sizes.begin(), sizes.end());
  if (dense) {
    local = local_sizes(call, sizes, place);
  }
  std::vector<int64_t> local_strides(sizes.size());
  int64_t step = 1;
  int64_t local_step = 1;
  for (const int64_t d : order) {
    dense = dense && (strides[d] == step || sizes[d] == 1);
    local_strides[d] = local_step;
    step *= sizes[d];
    local_step *= local[d];
  }
  call.use_local(0);
  if (!dense) {
    call.run(); // plain
    return true;
  }
  call.set(1, std::move(local));
  call.set(2, std::move(local_strides));
  call.run();
  call.place_result(0, place, sizes, strides);
  return true;
}

/// to: dtype, device, memory format.
bool to_copy(Call& call) {
  const auto place = call.place(0);
  if (has_out(call) || place.is_replicate() || !is_dense(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  if (place.is_partial() && !keeps_sum(call)) {
    return false;
  }
  const auto order = order_like(call, self);
  call.use_local(0);
  call.run();
  call.place_result(0, place, self.sizes(), order);
  return true;
}

/// clone and lift.
bool clone(Call& call) {
  const auto place = call.place(0);
  if (has_out(call) || place.is_replicate()) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto order = order_like(call, self);
  call.use_local(0);
  call.run();
  call.place_result(0, place, self.sizes(), order);
  return true;
}

/// fill_, zero_ and their functions. A part of a sum is filled on one process
/// and zero on the others.
bool fill(Call& call) {
  const auto place = call.place(0);
  if (has_out(call) || place.is_replicate() ||
      (place.is_partial() && !place.is_sum())) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const bool by_value = call.size() > 1;
  if (by_value && call.place(1).is_sum() && place.is_sum() &&
      !keeps_sum(call.tensor(1).scalar_type(), self.scalar_type())) {
    return false;
  }
  call.use_local(0);
  if (by_value && call.has(1)) {
    call.use(1, place.is_sum() ? Partial() : Replicate());
  } else if (by_value && place.is_sum() && call.axis().rank() != 0) {
    call.set(1, at::Scalar(0));
  }
  call.run();
  if (call.info().is_in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, place, self.sizes(), self.strides());
  }
  return true;
}

/// copy_: into a part of a sum go the parts of one, or what all have goes into
/// one process's.
bool copy_(Call& call) {
  const auto place = call.place(0);
  if (!place.is_sum()) {
    return pointwise(call);
  }
  const at::Tensor self = call.tensor(0);
  const auto& source = call.tensor(1);
  if (source.dim() > self.dim() ||
      (call.place(1).is_partial() &&
       !(call.place(1).is_sum() &&
         keeps_sum(source.scalar_type(), self.scalar_type())))) {
    return false;
  }
  call.use_local(0);
  call.use(1, Partial());
  call.run();
  call.return_self(self);
  return true;
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const plain_of_sum = "any; of P a replicated tensor is made";
  static const char* const same_rows =
      "the cut dimension has as many rows; else a replicated tensor is made";
  static const Family rows{
      {"aten::empty_like", empty_like, "any", none},
      {"aten::zeros_like", filled_like, plain_of_sum, none},
      {"aten::ones_like", filled_like, plain_of_sum, none},
      {"aten::full_like", filled_like, plain_of_sum, none},
      {"aten::new_empty", new_tensor, same_rows, none},
      {"aten::new_zeros", new_tensor, same_rows, none},
      {"aten::new_ones", new_tensor, same_rows, none},
      {"aten::new_full", new_tensor, same_rows, none},
      {"aten::new_empty_strided", new_empty_strided, "of equal sizes; else a replicated tensor is made", none},
      {"aten::_to_copy", to_copy, "any; P to a wider dtype", none},
      {"aten::clone", clone, "any", none},
      {"aten::lift", clone, "any", none},
      {"aten::fill", fill, "any", none},
      {"aten::fill_", fill, "any", none},
      {"aten::zero", fill, "any", none},
      {"aten::zero_", fill, "any", none},
      {"aten::copy_", copy_, "any", "a source that is cut differently"},
  };
  return rows;
}

} // namespace accel::distributed::factories_rules
