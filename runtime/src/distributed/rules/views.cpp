#include "distributed/rules/views.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include <algorithm>
#include <optional>

// Views of parts: shapes, the order of dimensions, types. A rule here must
// return a view of the local tensor: the result shares memory with it, so that
// writes are seen through both. The `_copy` operators have the rules of their
// views, and results of their own. Views of some entries are in slicing.cpp.

namespace accel::distributed::view_rules {

bool is_balanced(const std::vector<int64_t>& points) {
  const auto parts = static_cast<int64_t>(points.size()) - 1;
  for (int64_t rank = 0; rank < parts; ++rank) {
    const int64_t rows = points[rank + 1] - points[rank];
    if (rows == 0 || 2 * rows * parts < points.back()) {
      return false;
    }
  }
  return true;
}

bool in_parts(const Call& call) {
  return !call.place(0).is_replicate() && !has_out(call);
}

namespace {

/// The strides of the plain result of an operator that returns a view and does not
/// say so (`unsafe_split`, `_unsafe_view`), where it may not be in the order of its
/// dimensions; else empty.
Sizes strides_of_hidden_view(const Call& call, c10::IntArrayRef sizes) {
  if (!call.has_unordered() || call.name().find("unsafe_") == std::string::npos) {
    return {};
  }
  const auto& self = call.passed(0);
  if (self.numel() != c10::multiply_integers(sizes)) {
    return {self.strides().begin(), self.strides().end()};
  }
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), sizes);
  return strides ? Sizes(strides->begin(), strides->end()) : Sizes();
}

} // namespace

at::Tensor placed_view(
    const Call& call,
    const at::Tensor& local,
    const Placement& place,
    c10::IntArrayRef sizes) {
  if (call.info().is_view) {
    return make_local_view(call.axis(), local, place, sizes);
  }
  const auto like = strides_of_hidden_view(call, sizes);
  return make_tensor(call.axis(), local, place, sizes, like, like.size() == sizes.size());
}

bool run_view(Call& call, const Placement& place, c10::IntArrayRef sizes) {
  call.use_local(0);
  call.run();
  call.result() =
      placed_view(call, call.local_result(), place, sizes);
  return true;
}

bool run_view_to(Call& call, const Placement& result) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  call.use_local(0);
  call.run();
  const at::Tensor local = call.local_result();
  Sizes sizes = sizes_of(local);
  if (result.is_shard()) {
    sizes[result.dim()] = self.size(place.dim());
  }
  call.result() = placed_view(call, local, result, sizes);
  return true;
}

bool leave_view(
    Call& call,
    const at::Tensor& local,
    const Placement& place,
    c10::IntArrayRef sizes) {
  call.finish({placed_view(call, call.info().is_view ? local
                              : local.clone(at::MemoryFormat::Contiguous),
      place, sizes)});
  return true;
}

namespace {

/// A group of dimensions that a view takes to another group of as many elements.
struct Group {
  c10::IntArrayRef in;
  c10::IntArrayRef out;
  /// The first dimension of each.
  int64_t in_dim = 0;
  int64_t out_dim = 0;
};

/// The smallest group that dimension `dim` belongs to; nothing where sizes do not
/// fit.
std::optional<Group> group_of(
    c10::IntArrayRef in,
    c10::IntArrayRef out,
    int64_t dim) {
  const int64_t n_in = in.size();
  const int64_t n_out = out.size();
  int64_t i = 0;
  int64_t o = 0;
  while (i < n_in || o < n_out) {
    const int64_t i0 = i;
    const int64_t o0 = o;
    int64_t of_in = i < n_in ? in[i] : 1;
    int64_t of_out = o < n_out ? out[o] : 1;
    i = std::min(i + 1, n_in);
    o = std::min(o + 1, n_out);
    while (of_in != of_out) {
      if (of_in < of_out) {
        if (i >= n_in) {
          return {};
        }
        of_in *= in[i++];
      } else {
        if (o >= n_out) {
          return {};
        }
        of_out *= out[o++];
      }
    }
    if (dim >= i0 && dim < i) {
      return Group{in.slice(i0, i - i0), out.slice(o0, o - o0), i0, o0};
    }
  }
  return {};
}

/// Where a cut goes when dimensions are merged and split: `[7, T, C]` cut at 4
/// becomes `[7 * T, C]` cut at 4 * T, and `[T, 7, C]` becomes `[T * 7, C]`, each of
/// whose T blocks of 7 rows is cut at 4. Nothing where a process would not have
/// whole rows of one dimension of the result, or where the parts may have gaps
/// that the whole tensor has not.
std::optional<Placement> through_view(
    const Axis& axis,
    const at::Tensor& self,
    c10::IntArrayRef out,
    const Placement& place) {
  const auto in = self.sizes();
  const auto group = group_of(in, out, place.dim());
  if (!group) {
    return {};
  }
  // Of the group's elements each of `blocks` blocks of `block` is cut, at
  // `inner` times the points.
  int64_t blocks = place.in_blocks() ? place.cut()->blocks : 1;
  int64_t inner = 1;
  int64_t block = in[place.dim()] / blocks;
  for (size_t k = 0; k < group->in.size(); ++k) {
    const int64_t d = group->in_dim + static_cast<int64_t>(k);
    if (d < place.dim()) {
      blocks *= in[d];
      // Every second one of rows that are cut at odd ones.
      if (in[d] != 1 && part_of(self)->view && !self.is_contiguous()) {
        return {};
      }
    } else if (d > place.dim()) {
      inner *= in[d];
    }
  }
  block *= inner;
  // The dimensions of the result in front of the one that is cut are blocks.
  int64_t dim = -1;
  int64_t in_front = 1;
  int64_t elements = blocks * block;
  int64_t of_row = 1;
  int64_t left = blocks;
  for (size_t k = 0; k < group->out.size(); ++k) {
    elements /= group->out[k];
    if (group->out[k] != 1) {
      dim = group->out_dim + static_cast<int64_t>(k);
      of_row = elements;
      left = blocks / in_front;
    }
    in_front *= group->out[k];
    if (blocks % in_front != 0) {
      break;
    }
  }
  if (dim < 0 || block % of_row != 0) {
    return {};
  }
  if (!place.in_blocks() && left == 1 && inner == of_row) {
    return place.with_dim(dim);
  }
  std::vector<int64_t> points;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    const int64_t first = place.in_blocks()
        ? place.cut()->points[rank]
        : axis.range(in[place.dim()], place.cut(), rank).first;
    if (first * inner % of_row != 0) {
      return {};
    }
    points.push_back(first * inner / of_row);
  }
  points.push_back(block / of_row);
  return Shard(dim, axis.cut_at(std::move(points), left));
}

/// view, _unsafe_view, _reshape_alias.
bool view(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto asked = call.integers(1);
  const auto inferred = at::infer_size(asked, self.numel());
  const Sizes sizes(inferred.begin(), inferred.end());
  Placement result = place;
  if (place.is_shard()) {
    const auto found = through_view(call.axis(), self, sizes, place);
    if (!found) {
      return false;
    }
    result = *found;
  }
  auto own = local_sizes(call, sizes, result);
  if (const at::Tensor local = call.local(0);
      !at::detail::computeStride(local.sizes(), local.strides(), own) &&
      root_of(part_of(self))->borrows) {
    // This process's columns of a batch that lies in the program's memory. Writes
    // settle the batch there. Before that nobody takes the memory for its own, as the
    // view's whole value is there, too.
    leave_view(call, local.reshape(own), result, sizes);
    if (call.info().is_view) {
      part_of(call.result().toTensor())->whole =
          whole_of(part_of(self)).view(sizes);
    }
    return true;
  }
  if (call.size() == 3) { // strides are asked for, which parts have by themselves
    return leave_view(call, call.local(0).view(own), result, sizes);
  }
  call.set(1, std::move(own));
  return run_view(call, result, sizes);
}

/// view.dtype: of elements of another size the last dimension changes.
bool view_dtype(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto from = static_cast<int64_t>(self.element_size());
  const auto to =
      static_cast<int64_t>(c10::elementSize(call.at(1).toScalarType()));
  // The bits of a sum are not the sum of bits.
  if (place.is_partial() || (from != to && place.is_shard(self.dim() - 1))) {
    return false;
  }
  Sizes sizes = sizes_of(self);
  if (from != to && self.dim() > 0) {
    sizes.back() = sizes.back() * from / to;
  }
  return run_view(call, place, sizes);
}

/// detach, alias, _conj: the same in every place.
bool alias(Call& call) {
  return in_parts(call) &&
      run_view(call, call.place(0), sizes_of(call.tensor(0)));
}

/// _neg_view: the least of negatives is not the negative of the least.
bool negative(Call& call) {
  const auto place = call.place(0);
  return !(place.is_partial() && !place.is_sum()) && alias(call);
}

/// lift_fresh returns what it is given.
bool itself(Call& call) {
  const at::Tensor self = call.tensor(0);
  call.finish({self});
  return true;
}

bool swapped(Call& call, int64_t a, int64_t b) {
  if (!in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  Sizes sizes = sizes_of(call.tensor(0));
  Placement result = place;
  if (!sizes.empty()) {
    std::swap(sizes[a], sizes[b]);
    if (place.is_shard()) {
      result = place.with_dim(
          place.dim() == a ? b : place.dim() == b ? a : place.dim());
    }
  }
  return run_view(call, result, sizes);
}

bool transpose(Call& call) {
  const int64_t dims = call.tensor(0).dim();
  return swapped(call, call.dim(1, dims), call.dim(2, dims));
}

bool t(Call& call) {
  const bool matrix = call.tensor(0).dim() == 2;
  return matrix ? swapped(call, 0, 1) : alias(call);
}

bool permute(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  Sizes sizes;
  Placement result = place;
  for (int64_t dim : call.integers(1)) {
    dim = wrapped(dim, self.dim());
    if (place.is_shard(dim)) {
      result = place.with_dim(static_cast<int64_t>(sizes.size()));
    }
    sizes.push_back(self.size(dim));
  }
  return run_view(call, result, sizes);
}

bool unsqueeze(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const int64_t dim = call.dim(1, self.dim() + 1);
  Sizes sizes = sizes_of(self);
  sizes.insert(sizes.begin() + dim, 1);
  const auto result = place.is_shard() && place.dim() >= dim
      ? place.with_dim(place.dim() + 1)
      : place;
  return run_view(call, result, sizes);
}

/// squeeze in its forms. The whole sizes say which dimensions go: a part may
/// have one row where there are more.
bool squeeze(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const bool all = call.size() == 1;
  Sizes asked = all ? Sizes() : call.integers(1);
  for (auto& dim : asked) {
    dim = wrapped(dim, self.dim());
  }
  Sizes gone;
  Sizes sizes;
  Placement result = place;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool named =
        all || std::find(asked.begin(), asked.end(), d) != asked.end();
    if (named && self.size(d) == 1) {
      if (place.is_shard(d)) {
        return false;
      }
      gone.push_back(d);
      continue;
    }
    if (place.is_shard(d)) {
      result = place.with_dim(static_cast<int64_t>(sizes.size()));
    }
    sizes.push_back(self.size(d));
  }
  const auto& local = call.local(0);
  return leave_view(
      call, gone.empty() ? at::alias(local) : at::squeeze(local, gone), result,
      sizes);
}

bool expand(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  Sizes sizes = call.integers(1);
  const auto offset = static_cast<int64_t>(sizes.size()) - self.dim();
  if (offset < 0) {
    return false;
  }
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (sizes[offset + d] < 0) {
      sizes[offset + d] = self.size(d);
    }
  }
  Placement result = place;
  if (place.is_shard()) {
    if (sizes[offset + place.dim()] != self.size(place.dim())) {
      return false; // an error, or one row that is repeated
    }
    result = place.with_dim(place.dim() + offset);
  }
  call.set(1, local_sizes(call, sizes, result));
  return run_view(call, result, sizes);
}

/// view_as_real appends a dimension, view_as_complex takes the last away.
bool view_as_complex(Call& call) {
  return in_parts(call) &&
      !call.place(0).is_shard(call.tensor(0).dim() - 1) &&
      !(call.place(0).is_partial() && !call.place(0).is_sum()) &&
      run_view_to(call, call.place(0));
}

bool view_as_real(Call& call) {
  return in_parts(call) &&
      !(call.place(0).is_partial() && !call.place(0).is_sum()) &&
      run_view_to(call, call.place(0));
}

/// as_strided of a tensor that lies in memory as its parts do: contiguous, cut
/// in its outermost dimension (or a part of a sum). What it selects must be the
/// same of each row, and all rows. Backward of writes through views is of this
/// kind.
bool as_strided(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const Sizes sizes = call.integers(1);
  const Sizes strides = call.integers(2);
  if (!self.is_contiguous() || !call.local(0).is_contiguous() ||
      sizes.size() != strides.size() ||
      self.numel() == 0) {
    return false;
  }
  int64_t offset = call.at(3).isNone()
      ? 0
      : call.integer(3) - self.storage_offset();
  const int64_t row = place.is_shard() ? self.stride(place.dim()) : 0;
  Placement result = place;
  int64_t cut_dims = 0;
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0 || strides[d] < 0) {
      return false;
    }
    if (place.is_shard() && strides[d] == row &&
        sizes[d] == self.size(place.dim())) {
      result = place.with_dim(static_cast<int64_t>(d));
      ++cut_dims;
    } else {
      last += (sizes[d] - 1) * strides[d];
    }
  }
  if (offset < 0 ||
      (place.is_shard() &&
       (cut_dims != 1 || last >= row ||
        self.numel() != self.size(place.dim()) * row))) {
    return false;
  }
  const auto& local = call.local(0);
  return leave_view(
      call,
      local.as_strided(
          local_sizes(call, sizes, result), strides,
          local.storage_offset() + offset),
      result, sizes);
}

/// What changes the shape in place: the tensor becomes the view that the
/// operator of the same name without the underscore returns.
bool become(Call& call, const at::Tensor& view) {
  const at::Tensor self = call.tensor(0);
  auto* impl = self.unsafeGetTensorImpl();
  const auto strides = view.strides().vec();
  impl->set_sizes_and_strides(view.sizes(), strides, view.storage_offset());
  impl->set_backend_meta(PartPtr::reclaim_copy(part_of(view)));
  call.finish({self});
  return true;
}

bool squeeze_(Call& call) {
  const auto& self = call.tensor(0);
  return become(
      call,
      call.size() == 1 ? at::squeeze(self)
                       : at::squeeze(self, call.integers(1)));
}

bool unsqueeze_(Call& call) {
  return become(call, at::unsqueeze(call.tensor(0), call.integer(1)));
}

bool t_(Call& call) {
  return become(call, at::t(call.tensor(0)));
}

bool transpose_(Call& call) {
  return become(
      call, at::transpose(call.tensor(0), call.integer(1), call.integer(2)));
}

bool as_strided_(Call& call) {
  return become(
      call,
      at::as_strided(
          call.tensor(0), call.integers(1), call.integers(2),
          call.at(3).toOptional<int64_t>()));
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const outermost =
      "a dimension of which processes have whole rows, or rows of each of equal blocks, of one dimension of the view; P";
  static const Family rows{
      {"aten::view", view, outermost, none},
      {"aten::view.dtype", view_dtype, "any but P, and the last dimension where elements change their size", none},
      {"aten::_unsafe_view", view, outermost, none},
      {"aten::_reshape_alias", view, outermost, none},
      {"aten::detach", alias, "any", none},
      {"aten::alias", alias, "any", none},
      {"aten::_conj", alias, "any", none},
      {"aten::_neg_view", negative, "any", none},
      {"aten::lift_fresh", itself, "any", none},
      {"aten::transpose.int", transpose, "any", none},
      {"aten::t", t, "any", none},
      {"aten::permute", permute, "any", none},
      {"aten::unsqueeze", unsqueeze, "any", none},
      {"aten::squeeze", squeeze, "any", none},
      {"aten::expand", expand, "any", none},
      {"aten::view_as_real", view_as_real, "any", none},
      {"aten::view_as_complex", view_as_complex, "all but the last dimension; P", none},
      {"aten::as_strided", as_strided, "outermost dimension of a contiguous tensor, all its rows; P", none},
      {"aten::squeeze_", squeeze_, "any", none},
      {"aten::unsqueeze_", unsqueeze_, "any", none},
      {"aten::t_", t_, "any", none},
      {"aten::transpose_", transpose_, "any", none},
      {"aten::as_strided_", as_strided_, "as as_strided", none},
      {"aten::view_copy", view, outermost, none},
      {"aten::view_copy.dtype", view_dtype, "as view.dtype", none},
      {"aten::_reshape_alias_copy", view, outermost, none},
      {"aten::detach_copy", alias, "any", none},
      {"aten::alias_copy", alias, "any", none},
      {"aten::_conj_copy", alias, "any", none},
      {"aten::_neg_view_copy", negative, "any", none},
      {"aten::lift_fresh_copy", alias, "any", none},
      {"aten::transpose_copy.int", transpose, "any", none},
      {"aten::t_copy", t, "any", none},
      {"aten::permute_copy", permute, "any", none},
      {"aten::unsqueeze_copy", unsqueeze, "any", none},
      {"aten::squeeze_copy", squeeze, "any", none},
      {"aten::expand_copy", expand, "any", none},
      {"aten::view_as_real_copy", view_as_real, "any", none},
      {"aten::view_as_complex_copy", view_as_complex, "all but the last dimension; P", none},
      {"aten::as_strided_copy", as_strided, "as as_strided", none},
  };
  return rows;
}

} // namespace accel::distributed::view_rules
