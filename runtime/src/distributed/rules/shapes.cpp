#include "distributed/rules/common.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>

// Copies of other shapes: repeated, flipped, padded, cut to triangles. What
// happens beside the cut dimension happens in every part by itself. All are
// linear, so that parts of sums stay parts of sums.

namespace accel::distributed::shapes_rules {
namespace {

/// In parts, and not a maximum or the like, which padding would change.
bool linear_in_parts(const Call& call, size_t i = 0) {
  const auto place = call.place(i);
  return !has_out(call) && !place.is_replicate() &&
      !(place.is_partial() && !place.is_sum());
}

/// The operator on the local tensor. Its result is cut as `result` says, with
/// as many rows as argument 0 has in its cut dimension.
bool run_beside(Call& call, const Placement& result) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const int64_t n = place.is_shard() ? self.size(place.dim()) : 0;
  call.use_local(0);
  call.run();
  call.place_result(0, result, n);
  return true;
}

bool has_dim(const Call& call, c10::IntArrayRef dims, int64_t dim) {
  return std::any_of(dims.begin(), dims.end(), [&](int64_t d) {
    return wrapped(d, call.tensor(0).dim()) == dim;
  });
}

bool repeat(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  if (place.is_partial()) {
    return run_beside(call, place);
  }
  const Sizes repeats = call.integers(1);
  const int64_t offset =
      static_cast<int64_t>(repeats.size()) - call.tensor(0).dim();
  return offset >= 0 && repeats[offset + place.dim()] == 1 &&
      run_beside(call, place.with_dim(offset + place.dim()));
}

/// Rows change their places in some dimensions; the result lies in memory as the
/// tensor does.
bool flip(Call& call) {
  const auto place = call.place(0);
  if (!linear_in_parts(call) ||
      (place.is_shard() && has_dim(call, call.integers(1), place.dim()))) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  call.use_local(0);
  call.run();
  call.place_result(0, place, self.sizes(), self.strides());
  return true;
}

/// The same for argument `i`.
template <size_t i>
bool beside_dims(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  return !(place.is_shard() && has_dim(call, call.integers(i), place.dim())) &&
      run_beside(call, place);
}

/// roll: without dimensions it rolls all elements as one row.
bool roll(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  const Sizes dims = call.integers(2);
  return !(place.is_shard() &&
           (dims.empty() || has_dim(call, dims, place.dim()))) &&
      run_beside(call, place);
}

/// Zeros are as good in a part of a sum, other values are not.
bool constant_pad(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  if (place.is_partial()) {
    return call.at(2).toScalar().equal(0) && run_beside(call, place);
  }
  const Sizes pad = call.integers(1);
  const int64_t from_back = call.tensor(0).dim() - 1 - place.dim();
  const auto at = static_cast<size_t>(2 * from_back);
  return (at + 1 >= pad.size() || (pad[at] == 0 && pad[at + 1] == 0)) &&
      run_beside(call, place);
}

/// Padding of the last `padded` dimensions by what is inside of them.
template <int64_t padded>
bool pad_last(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  return !(place.is_shard() && place.dim() >= call.tensor(0).dim() - padded) &&
      run_beside(call, place);
}

/// Their backward: the gradient and the input, which is read for its sizes.
template <int64_t padded>
bool pad_last_backward(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const auto gradient = call.place(0);
  const auto place =
      gradient.is_shard() || gradient.is_sum() ? gradient : call.place(1);
  const Sizes sizes = sizes_of(call.tensor(1));
  if (place.is_replicate() || (place.is_partial() && !place.is_sum()) ||
      (place.is_shard() &&
       place.dim() >= static_cast<int64_t>(sizes.size()) - padded)) {
    return false;
  }
  call.use(0, place);
  if (place.is_shard()) {
    call.use(1, place);
  } else if (call.place(1).is_partial()) {
    call.use_local(1);
  } else {
    call.use_whole(1);
  }
  call.run();
  call.place_result(0, place, sizes);
  return true;
}

/// tril and triu: a part of the rows begins further down, one of the columns
/// further right.
bool triangle(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (place.is_shard() && place.dim() >= self.dim() - 2) {
    const int64_t begin =
        call.axis().range(self.size(place.dim()), place.cut()).first;
    const int64_t down = place.dim() == self.dim() - 2 ? begin : -begin;
    call.set(1, call.integer(1) + down);
  }
  call.use_local(0);
  call.run();
  if (call.info().is_in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, place, self.sizes());
  }
  return true;
}

/// diag_embed: the last dimension becomes two.
bool diag_embed(Call& call) {
  if (!linear_in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  const int64_t dims = call.tensor(0).dim();
  if (!place.is_shard()) {
    return run_beside(call, place);
  }
  const int64_t a = call.dim(2, dims + 1);
  const int64_t b = call.dim(3, dims + 1);
  if (place.dim() == dims - 1) {
    return false;
  }
  int64_t dim = place.dim();
  dim += dim >= std::min(a, b) ? 1 : 0;
  dim += dim >= std::max(a, b) ? 1 : 0;
  return run_beside(call, place.with_dim(dim));
}

/// pixel_shuffle and pixel_unshuffle take channels to pixels and back.
bool pixels(Call& call) {
  return pad_last<3>(call);
}

/// channel_shuffle: dimension 1.
bool channels(Call& call) {
  return linear_in_parts(call) && !call.place(0).is_shard(1) &&
      run_beside(call, call.place(0));
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const beside =
      "dimensions that keep their rows; P";
  static const Family rows{
      {"aten::repeat", repeat, beside, none},
      {"aten::flip", flip, beside, none},
      {"aten::rot90", beside_dims<2>, beside, none},
      {"aten::roll", roll, beside, none},
      {"aten::constant_pad_nd", constant_pad, "dimensions that are not padded; P where the value is 0", none},
      {"aten::reflection_pad1d", pad_last<1>, beside, none},
      {"aten::reflection_pad2d", pad_last<2>, beside, none},
      {"aten::reflection_pad3d", pad_last<3>, beside, none},
      {"aten::replication_pad1d", pad_last<1>, beside, none},
      {"aten::replication_pad2d", pad_last<2>, beside, none},
      {"aten::replication_pad3d", pad_last<3>, beside, none},
      {"aten::reflection_pad1d_backward", pad_last_backward<1>, beside, none},
      {"aten::reflection_pad2d_backward", pad_last_backward<2>, beside, none},
      {"aten::reflection_pad3d_backward", pad_last_backward<3>, beside, none},
      {"aten::replication_pad1d_backward", pad_last_backward<1>, beside, none},
      {"aten::replication_pad2d_backward", pad_last_backward<2>, beside, none},
      {"aten::replication_pad3d_backward", pad_last_backward<3>, beside, none},
      {"aten::tril", triangle, "any", none},
      {"aten::triu", triangle, "any", none},
      {"aten::tril_", triangle, "any", none},
      {"aten::triu_", triangle, "any", none},
      {"aten::diag_embed", diag_embed, "all but the last dimension; P", none},
      {"aten::pixel_shuffle", pixels, "all but channels and pixels; P", none},
      {"aten::pixel_unshuffle", pixels, "all but channels and pixels; P", none},
      {"aten::channel_shuffle", channels, "all but the channels; P", none},
  };
  return rows;
}

} // namespace accel::distributed::shapes_rules
