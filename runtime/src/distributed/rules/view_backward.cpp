#include "distributed/rules/views.h"

#include <ATen/ATen.h>

#include <algorithm>

// Backward of views, and writes into copies.

namespace accel::distributed::view_backward_rules {
namespace {

bool linear_in_parts(const Call& call, size_t i) {
  const auto place = call.place(i);
  return !has_out(call) && !place.is_replicate() &&
      !(place.is_partial() && !place.is_sum());
}

/// Backward of a view of one dimension that a gradient of `place` does not have
/// (or that is not cut): the gradient's cut dimension goes to `result`.
bool view_backward(Call& call, const Placement& result) {
  const Sizes sizes = call.integers(1);
  call.use_local(0);
  call.set(1, local_sizes(call, sizes, result));
  call.run();
  call.place_result(0, result, sizes);
  return true;
}

bool select_backward(Call& call) {
  if (!linear_in_parts(call, 0)) {
    return false;
  }
  const auto place = call.place(0);
  const int64_t dim = call.dim(2, call.tensor(0).dim() + 1);
  return view_backward(
      call,
      place.is_shard() && place.dim() >= dim ? place.with_dim(place.dim() + 1)
                                             : place);
}

/// Of a gradient that is cut in the sliced dimension: what was sliced is made of
/// blocks like the gradient's (the projection of queries, of keys and of values).
bool slice_of_blocks_backward(
    Call& call,
    const Sizes& sizes,
    int64_t dim,
    int64_t start,
    int64_t step) {
  const auto place = call.place(0);
  const auto& axis = call.axis();
  const int64_t count = place.in_blocks() ? place.cut()->blocks : 1;
  const int64_t rows = call.tensor(0).size(dim) / count;
  if (rows < axis.size() || step != 1 || start % rows != 0 ||
      sizes[dim] % rows != 0 || sizes[dim] / rows < 2) {
    return false;
  }
  std::vector<int64_t> points;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    points.push_back(
        place.cut() ? place.cut()->points[rank]
                    : axis.range(rows, {}, rank).first);
  }
  points.push_back(rows);
  const auto result =
      Shard(dim, axis.cut_at(std::move(points), sizes[dim] / rows));
  const auto& local = call.local(0);
  const int64_t first = start / rows * (local.size(dim) / count);
  call.finish({at::slice_backward(
      local, local_sizes(call, sizes, result), dim, first,
      first + local.size(dim), 1)});
  call.place_result(0, result, sizes);
  return true;
}

bool slice_backward(Call& call) {
  if (!linear_in_parts(call, 0)) {
    return false;
  }
  const auto place = call.place(0);
  const Sizes sizes = call.integers(1);
  const int64_t dim = call.dim(2, static_cast<int64_t>(sizes.size()));
  if (!place.is_shard(dim)) {
    return view_backward(call, place);
  }
  // Rows of the slice are rows of what was sliced.
  const auto& axis = call.axis();
  const int64_t n = sizes[dim];
  const int64_t rows = call.tensor(0).size(dim);
  int64_t start = call.integer(3);
  start = std::clamp<int64_t>(start < 0 ? start + n : start, 0, n);
  const int64_t step = call.integer(5);
  if (place.in_blocks()) {
    return slice_of_blocks_backward(call, sizes, dim, start, step);
  }
  std::vector<int64_t> points{0};
  for (int64_t rank = 1; rank < axis.size(); ++rank) {
    points.push_back(start + axis.range(rows, place.cut(), rank).first * step);
  }
  points.push_back(n);
  if (!cut_further(call, 0, dim) && view_rules::is_balanced(points)) {
    const Placement result = Shard(dim, axis.cut_at(std::move(points)));
    const int64_t first = axis.rank() == 0 ? start : 0;
    const auto& local = call.local(0);
    call.finish({at::slice_backward(
        local, local_sizes(call, sizes, result), dim, first,
        first + (local.size(dim) - 1) * step + 1, step)});
    call.place_result(0, result, sizes);
    return true;
  }
  if (slice_of_blocks_backward(call, sizes, dim, start, step)) {
    return true;
  }
  call.use_whole(0);
  call.run();
  if (n >= axis.size()) {
    call.result() = own_rows(call.axis(), call.local_result(), Shard(dim)).clone();
    call.place_result(0, Shard(dim), sizes);
  }
  return true;
}

bool diagonal_backward(Call& call) {
  if (!linear_in_parts(call, 0)) {
    return false;
  }
  const auto place = call.place(0);
  const int64_t dims = call.integers(1).size();
  const int64_t a = call.dim(3, dims);
  const int64_t b = call.dim(4, dims);
  Placement result = place;
  if (place.is_shard()) {
    if (place.dim() == dims - 2) {
      return false;
    }
    int64_t dim = place.dim();
    dim += dim >= std::min(a, b) ? 1 : 0;
    dim += dim >= std::max(a, b) ? 1 : 0;
    result = place.with_dim(dim);
  }
  return view_backward(call, result);
}

bool unfold_backward(Call& call) {
  if (!linear_in_parts(call, 0)) {
    return false;
  }
  const auto place = call.place(0);
  const int64_t dims = call.integers(1).size();
  const int64_t dim = call.dim(2, dims);
  return !place.is_shard(dim) && !place.is_shard(dims) &&
      view_backward(call, place);
}

/// `x` with `src` written into a view of it: both are cut alike, where `of_src`
/// is where a cut dimension of `x` is in the view; -1 for none. The result lies as `x`:
/// that cannot be told from a part that is rows of a batch's memory, which has gaps.
template <typename F>
bool scatter_view(Call& call, F&& of_src) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const at::Tensor src = call.tensor(1);
  const auto place = call.place(0);
  if (place.is_shard()) {
    const int64_t dim = of_src(place.dim());
    if (dim < 0) {
      return false;
    }
    call.use(1, place.with_dim(dim));
    call.use_local(0);
    call.run();
    call.place_result(0, place, self.sizes(), self.strides());
    return true;
  }
  const auto from = call.place(1);
  if (!from.is_shard()) {
    return false;
  }
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (of_src(d) == from.dim()) {
      const auto result = from.with_dim(d);
      call.use(0, result);
      call.use_local(1);
      call.run();
      call.place_result(0, result, self.sizes(), self.strides());
      return true;
    }
  }
  return false;
}

bool select_scatter(Call& call) {
  const int64_t dim = call.dim(2, call.tensor(0).dim());
  return scatter_view(call, [&](int64_t d) {
    return d == dim ? -1 : d > dim ? d - 1 : d;
  });
}

bool slice_scatter(Call& call) {
  const int64_t dim = call.dim(2, call.tensor(0).dim());
  return scatter_view(call, [&](int64_t d) { return d == dim ? -1 : d; });
}

bool diagonal_scatter(Call& call) {
  const int64_t dims = call.tensor(0).dim();
  const int64_t a = call.dim(3, dims);
  const int64_t b = call.dim(4, dims);
  return scatter_view(call, [&](int64_t d) {
    return d == a || d == b ? -1 : d - (d > a ? 1 : 0) - (d > b ? 1 : 0);
  });
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const beside = "dimensions beside the selected one; P";
  static const Family rows{
      {"aten::select_backward", select_backward, "any", none},
      {"aten::slice_backward", slice_backward, "any", "of the cut dimension, where the rows are not spread evenly: all-gather of the gradient; nothing of whole blocks"},
      {"aten::diagonal_backward", diagonal_backward, beside, none},
      {"aten::unfold_backward", unfold_backward, beside, none},
      {"aten::select_scatter", select_scatter, beside, none},
      {"aten::slice_scatter", slice_scatter, beside, none},
      {"aten::diagonal_scatter", diagonal_scatter, beside, none},
  };
  return rows;
}

} // namespace accel::distributed::view_backward_rules
