#include "distributed/rules/common.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

// Indexing. What is looked up beside the cut dimension is looked up in every
// part by itself; a tensor that all processes have is looked up by the parts of
// a cut index. Where an index may name rows of other processes, the whole
// tensors do it. Reading is linear: parts of sums stay parts of sums.

namespace accel::distributed::indexing_rules {
namespace {

// ---- x[indices]

/// What a list of indices does to a tensor: the dimensions that are indexed go,
/// and the dimensions of the indices, which are broadcast, come.
struct Lookup {
  std::vector<std::optional<at::Tensor>> indices;
  /// For each dimension of the tensor, where it is in the result; -1 for one
  /// that is indexed.
  Sizes dim_of;
  /// The indices' dimensions in the result: from `first`, `count` of them.
  int64_t first = 0;
  int64_t count = 0;
  /// Their broadcast sizes; unknown where there is a mask.
  std::vector<int64_t> sizes;
  bool masks = false;
  int64_t dims = 0;
};

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

/// False for what is an error, or is not understood here.
bool look_up(const at::Tensor& self, const c10::IValue& list, Lookup& out) {
  int64_t next = 0;
  // Indices apart from each other put their dimensions in front.
  enum { kNone, kInside, kBehind, kApart } where = kNone;
  c10::SmallVector<int64_t, 5> kept;
  for (const std::optional<at::Tensor>& index : list.toOptionalTensorList().vec()) {
    out.indices.push_back(index);
    if (!index || !index->defined()) {
      out.indices.back() = std::nullopt;
      kept.push_back(next++);
      where = where == kInside ? kBehind : where;
      continue;
    }
    if (where == kNone) {
      out.first = static_cast<int64_t>(kept.size());
      where = kInside;
    } else if (where == kBehind) {
      where = kApart;
    }
    if (is_mask(*index)) {
      out.masks = true;
      next += index->dim();
      out.count = std::max<int64_t>(out.count, 1);
      if (index->dim() == 0) {
        return false;
      }
    } else {
      next += 1;
      out.count = std::max(out.count, index->dim());
      if (!out.masks) {
        if (!out.sizes.empty() && !at::are_expandable(out.sizes, index->sizes())) {
          return false;
        }
        out.sizes = at::infer_size(out.sizes, index->sizes());
      }
    }
  }
  if (where == kNone || next > self.dim()) {
    return false;
  }
  for (; next < self.dim(); ++next) {
    kept.push_back(next);
  }
  if (where == kApart) {
    out.first = 0;
  }
  out.dim_of.resize(self.dim(), -1);
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    out.dim_of[kept[i]] = at < out.first ? at : at + out.count;
  }
  out.dims = static_cast<int64_t>(kept.size()) + out.count;
  return true;
}

/// All indices, each in the placement that `place` says.
template <typename F>
void use_indices(Call& call, const Lookup& lookup, F&& place) {
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& index : lookup.indices) {
    list.push_back(
        index ? std::optional<at::Tensor>(call.local_as(*index, place(*index)))
              : index);
  }
  call.set(1, std::move(list));
}

void use_whole_indices(Call& call, const Lookup& lookup) {
  use_indices(call, lookup, [](const at::Tensor&) { return Replicate(); });
}

/// The cut of the indices, as a dimension of their broadcast sizes.
std::optional<Placement> cut_of_indices(const Call& call, const Lookup& lookup) {
  if (lookup.masks) {
    return {};
  }
  for (const auto& index : lookup.indices) {
    if (!index) {
      continue;
    }
    const auto place = call.place(*index);
    if (place.is_shard() && index->size(place.dim()) != 1) {
      return place.with_dim(place.dim() + lookup.count - index->dim());
    }
  }
  return {};
}

/// Where a tensor is cut that is broadcast to something whose cut dimension is
/// `back` dimensions from its end.
Placement broadcast_cut(
    const at::Tensor& tensor,
    int64_t back,
    const Placement& place) {
  const int64_t dim = tensor.dim() - back;
  return dim < 0 || tensor.size(dim) == 1 ? Replicate() : place.with_dim(dim);
}

bool index(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  Lookup lookup;
  if (!look_up(self, call.at(1), lookup)) {
    return false;
  }
  const auto cut = cut_of_indices(call, lookup);
  if (place.is_shard() && lookup.dim_of[place.dim()] >= 0) {
    use_whole_indices(call, lookup);
    call.use_local(0);
    call.run();
    call.place_result(
        0, place.with_dim(lookup.dim_of[place.dim()]), self.size(place.dim()));
    return true;
  }
  if (place.is_sum() && !cut) {
    use_whole_indices(call, lookup);
    call.use_local(0);
    call.run();
    call.place_result(0, place);
    return true;
  }
  if (!place.is_replicate() || !cut) {
    return false;
  }
  const int64_t back = lookup.count - cut->dim();
  use_indices(call, lookup, [&](const at::Tensor& index) {
    return broadcast_cut(index, back, *cut);
  });
  call.use_whole(0);
  call.run();
  call.place_result(
      0, cut->with_dim(lookup.first + cut->dim()), lookup.sizes[cut->dim()]);
  return true;
}

/// `x[mask] = number`: each element by itself. (A number has no dimensions: a
/// tensor of one element may have more on another row of a mesh.)
bool put_by_mask(Call& call, const Lookup& lookup) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  int64_t first = 0;
  const at::Tensor* mask = nullptr;
  for (const auto& index : lookup.indices) {
    if (index && mask != nullptr) {
      return false;
    }
    if (index) {
      mask = &*index;
    } else if (mask == nullptr) {
      ++first;
    }
  }
  const int64_t dim = place.dim() - first;
  if (!is_mask(*mask) || call.tensor(2).dim() != 0 || dim < 0 ||
      dim >= mask->dim() || mask->size(dim) != self.size(place.dim())) {
    return false;
  }
  use_indices(call, lookup, [&](const at::Tensor&) {
    return place.with_dim(dim);
  });
  call.use_whole(2);
  return true;
}

/// index_put in its forms.
bool index_put(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  Lookup lookup;
  if (!place.is_shard() || !look_up(self, call.at(1), lookup)) {
    return false;
  }
  const int64_t dim = lookup.dim_of[place.dim()];
  if (dim >= 0) {
    call.use(2, broadcast_cut(call.tensor(2), lookup.dims - dim, place));
    use_whole_indices(call, lookup);
  } else if (!put_by_mask(call, lookup)) {
    return false;
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

// ---- Rows named by an index

/// The result of an operator on argument 0, which may be in place.
void leave_self(Call& call, const at::Tensor& self, const Placement& place) {
  if (call.info().is_in_place) {
    call.return_self(self);
  } else {
    call.place_result(0, place, self.sizes());
  }
}

bool index_select(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto of_index = call.place(2);
  const int64_t dim = call.dim(1, self.dim());
  if (cut_beside(call, 0, dim)) {
    call.use_local(0);
    call.use_whole(2);
    call.run();
    call.place_result(0, place, self.size(place.dim()));
    return true;
  }
  if (of_index.is_shard() && self.dim() > 0) {
    const int64_t n = call.tensor(2).numel();
    call.use_whole(0);
    call.use_local(2);
    call.run();
    call.place_result(0, of_index.with_dim(dim), n);
    return true;
  }
  if (place.is_sum()) {
    call.use_local(0);
    call.use_whole(2);
    call.run();
    call.place_result(0, place);
    return true;
  }
  return false;
}

/// LibTorch's `index_reduce` for 16-bit numbers on CPUs (2.11) fails where it is
/// given a single row.
bool fails_for_single_rows(const Call& call) {
  return call.name().rfind("aten::index_reduce", 0) == 0 &&
      at::isReducedFloatingType(call.tensor(0).scalar_type()) &&
      call.tensor(0).is_cpu();
}

/// index_add, index_copy, index_reduce: rows of `source` go to rows of `self`.
bool index_write(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto of_source = call.place(3);
  const int64_t dim = call.dim(1, self.dim());
  if (call.tensor(3).dim() != self.dim() || fails_for_single_rows(call)) {
    return false;
  }
  const bool in_place = call.info().is_in_place;
  if (cut_beside(call, 0, dim) || (!in_place && cut_beside(call, 3, dim))) {
    const auto to = cut_beside(call, 0, dim) ? place : of_source;
    if (call.tensor(3).size(to.dim()) != self.size(to.dim())) {
      return false;
    }
    call.use(0, to);
    call.use_whole(2);
    call.use(3, to);
    call.run();
    leave_self(call, self, to);
    return true;
  }
  const std::string_view name = call.name();
  const bool adds = name == "aten::index_add" || name == "aten::index_add_";
  if (!adds || place.is_shard() || (place.is_partial() && !place.is_sum()) ||
      (in_place && !place.is_sum())) {
    return false;
  }
  // Rows of the source on one process are added by that process.
  if (of_source.is_shard(dim)) {
    call.use(2, of_source.with_dim(0));
  } else if (of_source.is_sum() || (place.is_sum() && of_source.is_replicate())) {
    call.use_whole(2);
  } else {
    return false;
  }
  call.use(0, Partial());
  call.use(3, of_source.is_shard() ? of_source : Partial());
  call.run();
  leave_self(call, self, Partial());
  return true;
}

bool index_fill(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (!cut_beside(call, 0, call.dim(1, self.dim()))) {
    return false;
  }
  call.use_local(0);
  call.use_whole(2);
  call.use_whole(3);
  call.run();
  leave_self(call, self, place);
  return true;
}

// ---- gather and scatter

/// The cut of the first of these arguments that is cut beside `dim`, if all
/// of them have equally many rows there, which then lie on the same process.
std::optional<Placement> common_cut(
    const Call& call,
    std::initializer_list<size_t> arguments,
    int64_t dim,
    bool only_first) {
  for (const auto i : arguments) {
    if (!call.has(i) || !cut_beside(call, i, dim)) {
      if (only_first) {
        return {};
      }
      continue;
    }
    const auto place = call.place(i);
    for (const auto other : arguments) {
      if (call.has(other) &&
          (call.tensor(other).dim() != call.tensor(i).dim() ||
           call.tensor(other).size(place.dim()) !=
               call.tensor(i).size(place.dim()))) {
        return {};
      }
    }
    return place;
  }
  return {};
}

bool gather(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const at::Tensor index = call.tensor(2);
  const auto place = call.place(0);
  const auto of_index = call.place(2);
  const int64_t dim = call.dim(1, std::max<int64_t>(self.dim(), 1));
  if (const auto cut = common_cut(call, {2, 0}, dim, false)) {
    call.use(0, *cut);
    call.use(2, *cut);
    call.run();
    call.place_result(0, *cut, index.sizes());
    return true;
  }
  if (of_index.is_shard(dim)) {
    call.use_whole(0);
    call.use_local(2);
    call.run();
    call.place_result(0, of_index, index.sizes());
    return true;
  }
  if (place.is_sum() && of_index.is_replicate()) {
    call.use_local(0);
    call.use_whole(2);
    call.run();
    call.place_result(0, place, index.sizes());
    return true;
  }
  return false;
}

/// scatter, scatter_add and scatter_reduce; the source may be a number.
bool scatter(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const int64_t dim = call.dim(1, std::max<int64_t>(self.dim(), 1));
  const bool in_place = call.info().is_in_place;
  const auto cut = common_cut(call, {0, 2, 3}, dim, in_place);
  if (cut) {
    for (const size_t i : {0, 2, 3}) {
      call.use(i, *cut);
    }
    call.run();
    leave_self(call, self, *cut);
    return true;
  }
  const std::string_view name = call.name();
  if (name != "aten::scatter_add" && name != "aten::scatter_add_") {
    return false;
  }
  // What a process adds of its own part is a part of the sum.
  const auto of_index = call.place(2);
  if (!of_index.is_shard(dim) || place.is_shard() ||
      (place.is_partial() && !place.is_sum()) ||
      (in_place && !place.is_sum()) ||
      call.tensor(3).size(dim) != call.tensor(2).size(dim)) {
    return false;
  }
  call.use(0, Partial());
  call.use(2, of_index);
  call.use(3, of_index);
  call.run();
  leave_self(call, self, Partial());
  return true;
}

/// take: the index may name every element.
bool take(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto of_index = call.place(1);
  const Sizes sizes = sizes_of(call.tensor(1));
  if (of_index.is_shard()) {
    call.use_whole(0);
    call.use_local(1);
    call.run();
    call.place_result(0, of_index, sizes);
    return true;
  }
  if (place.is_sum()) {
    call.use_local(0);
    call.use_whole(1);
    call.run();
    call.place_result(0, place, sizes);
    return true;
  }
  return false;
}

// ---- What a mask selects

/// Where the entries lie that a mask selects of rows cut as `place` says: the
/// processes' entries one behind the other. Null where a process has none, for
/// parts are not empty. Collective.
Cut cut_of_selected(const Call& call, const at::Tensor& local_mask) {
  const auto counts =
      stacked(call, local_mask.count_nonzero()).to(at::kCPU, at::kLong);
  std::vector<int64_t> points{0};
  for (int64_t rank = 0; rank < call.axis().size(); ++rank) {
    const int64_t count = counts.const_data_ptr<int64_t>()[rank];
    if (count == 0) {
      return {};
    }
    points.push_back(points.back() + count);
  }
  return c10::make_intrusive<CutPoints>(std::move(points));
}

/// Whether the rows of a tensor and of a mask of the same sizes are cut, and the
/// mask can be counted.
bool selects_rows(const Call& call) {
  const auto place = call.place(0);
  return place.is_shard(0) && call.tensor(0).sizes() == call.tensor(1).sizes() &&
      call.tensor(1).scalar_type() == at::kBool && call.axis().further() == 0;
}

/// self, mask: the selected entries in the order of the rows.
bool masked_select(Call& call) {
  if (has_out(call) || !selects_rows(call)) {
    return false;
  }
  const auto place = call.place(0);
  const auto mask = call.local_as(call.tensor(1), place);
  const auto cut = cut_of_selected(call, mask);
  if (!cut) {
    return false;
  }
  const Sizes sizes{cut->points.back()};
  call.use_local(0);
  call.set(1, mask);
  call.run();
  call.place_result(0, Shard(0, call.axis().cut_at(cut->points)), sizes);
  return true;
}

/// self, mask, source: the selected entries are the source's, in order.
bool masked_scatter(Call& call) {
  if (has_out(call) || !selects_rows(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const at::Tensor source = call.tensor(2);
  const auto place = call.place(0);
  const auto mask = call.local_as(call.tensor(1), place);
  const auto cut = cut_of_selected(call, mask);
  if (!cut || source.numel() < cut->points.back()) {
    return false;
  }
  if (source.dim() == 1 && source.size(0) == cut->points.back()) {
    call.use(2, Shard(0, call.axis().cut_at(cut->points)));
  } else {
    const int64_t begin = cut->points[call.axis().rank()];
    const auto whole = call.local_as(source, Replicate()).flatten();
    call.set(2, whole.slice(0, begin));
  }
  call.use_local(0);
  call.set(1, mask);
  call.run();
  leave_self(call, self, place);
  return true;
}

// ---- Embeddings

bool embedding(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor weight = call.tensor(0);
  const auto place = call.place(0);
  const auto of_indices = call.place(1);
  Sizes sizes = sizes_of(call.tensor(1));
  sizes.push_back(weight.size(1));
  if (of_indices.is_shard()) {
    call.use_whole(0);
    call.use_local(1);
    call.run();
    call.place_result(0, of_indices, sizes);
    return true;
  }
  if (place.is_shard(1) || place.is_sum()) {
    call.use_local(0);
    call.use_whole(1);
    call.run();
    call.place_result(
        0,
        place.is_shard()
            ? place.with_dim(static_cast<int64_t>(sizes.size()) - 1)
            : place,
        sizes);
    return true;
  }
  return false;
}

/// The weight's gradient: each process adds the rows of its indices.
bool embedding_dense_backward(Call& call) {
  if (has_out(call)) {
    return false;
  }
  const at::Tensor gradient = call.tensor(0);
  const auto place = call.place(0);
  const auto of_indices = call.place(1);
  const Sizes sizes{call.integer(2), gradient.size(-1)};
  const int64_t last = gradient.dim() - 1;
  if (place.is_shard(last) || place.is_sum()) {
    call.use_local(0);
    call.use_whole(1);
    call.run();
    call.place_result(0, place.is_shard() ? place.with_dim(1) : place, sizes);
    return true;
  }
  // By frequency: the frequencies of all indices.
  const auto cut = place.is_shard() ? place : of_indices;
  if (!cut.is_shard() || call.boolean(4)) {
    return false;
  }
  call.use(0, cut);
  call.use(1, cut);
  call.run();
  call.place_result(0, Partial(), sizes);
  return true;
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const beside = "dimensions that are not indexed";
  static const char* const of_index =
      "dimensions that are not indexed; a cut index into a replicated tensor; P";
  static const char* const rows_of_index =
      "dimensions that are not indexed; a cut index; P";
  static const char* const gathers_table =
      "for a cut index: all-gather of what it looks into, where that is cut";
  static const Family rows{
      {"aten::index.Tensor", index, of_index, none},
      {"aten::_unsafe_index.Tensor", index, of_index, none},
      {"aten::index_put", index_put, "dimensions that are not indexed; any for a number put by a mask", none},
      {"aten::index_put_", index_put, "as index_put", none},
      {"aten::_index_put_impl_", index_put, "as index_put", none},
      {"aten::_unsafe_index_put", index_put, "as index_put", none},
      {"aten::index_select", index_select, rows_of_index, gathers_table},
      {"aten::index_add", index_write, "dimensions that are not indexed; a cut source, of which P is left", none},
      {"aten::index_add_", index_write, "dimensions that are not indexed; P", none},
      {"aten::index_copy", index_write, beside, none},
      {"aten::index_copy_", index_write, beside, none},
      {"aten::index_reduce", index_write, beside, none},
      {"aten::index_reduce_", index_write, beside, none},
      {"aten::index_fill.int_Scalar", index_fill, beside, none},
      {"aten::index_fill.int_Tensor", index_fill, beside, none},
      {"aten::index_fill_.int_Scalar", index_fill, beside, none},
      {"aten::index_fill_.int_Tensor", index_fill, beside, none},
      {"aten::gather", gather, rows_of_index, gathers_table},
      {"aten::scatter.src", scatter, beside, none},
      {"aten::scatter.value", scatter, beside, none},
      {"aten::scatter.reduce", scatter, beside, none},
      {"aten::scatter.value_reduce", scatter, beside, none},
      {"aten::scatter_.src", scatter, beside, none},
      {"aten::scatter_.value", scatter, beside, none},
      {"aten::scatter_.reduce", scatter, beside, none},
      {"aten::scatter_.value_reduce", scatter, beside, none},
      {"aten::scatter_add", scatter, "dimensions that are not indexed; a cut index, of which P is left", none},
      {"aten::scatter_add_", scatter, "dimensions that are not indexed; P", none},
      {"aten::scatter_reduce.two", scatter, beside, none},
      {"aten::scatter_reduce_.two", scatter, beside, none},
      {"aten::take", take, "a cut index; P", gathers_table},
      {"aten::masked_fill", pointwise, "any", "what brings the mask to the tensor's place"},
      {"aten::masked_fill_", pointwise, "any", "what brings the mask to the tensor's place"},
      {"aten::masked_select", masked_select, "S(0) of a mask of the same sizes", "the number of selected entries of each process"},
      {"aten::masked_scatter", masked_scatter, "S(0) of a mask of the same sizes", "the number of selected entries of each process; the source where it is cut otherwise"},
      {"aten::masked_scatter_", masked_scatter, "S(0) of a mask of the same sizes", "the number of selected entries of each process; the source where it is cut otherwise"},
      {"aten::embedding", embedding, "indices; columns of the weight; P", gathers_table},
      {"aten::embedding_dense_backward", embedding_dense_backward, "indices, of which P is left; columns; P", none},
  };
  return rows;
}

} // namespace accel::distributed::indexing_rules
