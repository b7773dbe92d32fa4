#include "distributed/memory_order.h"
#include "distributed/rules/common.h"
#include "distributed/rules/selected.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <initializer_list>
#include <optional>

// Indexing by lists of indices. What is looked up beside the cut dimension is looked up in every
// part by itself; a tensor that all processes have is looked up by the parts of
// a cut index. Where an index may name rows of other processes, the whole
// tensors do it. Reading is linear: parts of sums stay parts of sums.

namespace accel::distributed::indexing_rules {
namespace {

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

/// A cut of the first dimension of the indices' broadcast sizes, where every process
/// gets some of it.
std::optional<Placement> cut_of_rows(const Call& call, const Lookup& lookup) {
  return !lookup.masks && !lookup.sizes.empty() &&
          lookup.sizes[0] >= call.axis().size()
      ? std::optional<Placement>(Shard(0))
      : std::nullopt;
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

/// `x.index({arange(n), y})` of a tensor of n rows, cut along them: each row is looked
/// into by itself. The dimension of the indices' broadcast sizes that is cut then;
/// nothing where the rows are named in another order.
std::optional<int64_t> dim_of_own_rows(
    const Call& call, const at::Tensor& self, const Lookup& lookup) {
  const auto place = call.place(0);
  const auto d = static_cast<size_t>(place.dim());
  if (!place.is_shard() || lookup.masks || d >= lookup.indices.size() ||
      !lookup.indices[d]) {
    return {};
  }
  const at::Tensor& rows = *lookup.indices[d];
  const int64_t n = self.size(place.dim());
  if (part_of(rows) != nullptr || rows.scalar_type() != at::kLong ||
      rows.numel() != n || n < 2 ||
      !at::equal(rows.reshape(-1), at::arange(n, rows.options()))) {
    return {};
  }
  const auto sizes = rows.sizes();
  const auto longest = std::max_element(sizes.begin(), sizes.end());
  return *longest == n
      ? std::optional<int64_t>(
            longest - sizes.begin() + lookup.count - rows.dim())
      : std::nullopt;
}

/// The indices of `dim_of_own_rows`: those of the rows count on each process anew.
void use_own_rows(Call& call, const Lookup& lookup, int64_t cut) {
  const auto place = call.place(0);
  const int64_t back = lookup.count - cut;
  const int64_t n = call.local(0).size(place.dim());
  const at::Tensor& rows = *lookup.indices[place.dim()];
  Sizes sizes(rows.sizes().begin(), rows.sizes().end());
  sizes[cut - lookup.count + rows.dim()] = n;
  use_indices(call, lookup, [&](const at::Tensor& index) {
    return broadcast_cut(index, back, place);
  });
  auto list = call.at(1).toOptionalTensorList();
  list.set(place.dim(), at::arange(n, rows.options()).view(sizes));
  call.set(1, std::move(list));
}

/// The strides of the plain result, which TensorIterator makes of the tensor,
/// repeated along the dimensions of the indices, and of these, repeated along all
/// others. Empty where all lie in the order of their dimensions, and so does the
/// result, which the parts show unless some process has a `single` row.
Sizes strides_of_lookup(
    const at::Tensor& self,
    const Lookup& lookup,
    c10::IntArrayRef sizes,
    bool single) {
  const bool ordered = self.is_contiguous() &&
      std::all_of(lookup.indices.begin(), lookup.indices.end(),
                  [](const auto& index) {
                    return !index || index->is_contiguous();
                  });
  if (ordered && !single) {
    return {};
  }
  std::vector<Sizes> operands{Sizes(sizes.size(), 0)};
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (lookup.dim_of[d] >= 0) {
      operands[0][lookup.dim_of[d]] = self.stride(d);
    }
  }
  for (const auto& index : lookup.indices) {
    if (!index) {
      continue;
    }
    operands.emplace_back(sizes.size(), 0);
    if (is_mask(*index)) {
      // Becomes lists of indices: one dimension, the last of the indices'.
      operands.back()[lookup.first + lookup.count - 1] = 1;
      continue;
    }
    const int64_t first = lookup.first + lookup.count - index->dim();
    for (int64_t d = 0; d < index->dim(); ++d) {
      const bool repeated = index->size(d) == 1 && sizes[first + d] != 1;
      operands.back()[first + d] = repeated ? 0 : index->stride(d);
    }
  }
  return strides_of_result(operands, sizes);
}

/// Result 0, of which `n` rows are cut, in the order of memory of the plain one.
void place_looked_up(
    Call& call,
    const at::Tensor& self,
    const Lookup& lookup,
    const Placement& place,
    int64_t n = 0) {
  Sizes sizes = sizes_of(call.local_result());
  if (place.is_shard()) {
    sizes[place.dim()] = n;
  }
  call.place_result(
      0, place, sizes,
      strides_of_lookup(
          self, lookup, sizes, has_single_rows(call.axis(), place, sizes)));
}

/// Whether a mask, cut as `place` says, names rows of `self` that are cut so.
bool names_rows(const at::Tensor& mask, const at::Tensor& self, const Placement& place) {
  return mask.scalar_type() == at::kBool && place.is_shard(0) &&
      mask.dim() <= self.dim() &&
      mask.sizes() == self.sizes().slice(0, mask.dim());
}

/// `x.index({mask})` of rows that are cut, or by a mask that is: each process selects
/// among its own.
bool index_by_mask(Call& call, const at::Tensor& self, const Lookup& lookup) {
  if (lookup.indices.size() != 1 || call.axis().further() != 0) {
    return false;
  }
  const at::Tensor mask = *lookup.indices[0];
  auto place = call.place(0);
  place = place.is_replicate() ? call.place(mask) : place;
  if (!names_rows(mask, self, place) ||
      !(place == call.place(0) || call.place(0).is_replicate())) {
    return false;
  }
  const auto local = call.local_as(mask, place);
  const auto cut = cut_of_selected(call, local);
  if (!cut) {
    return false;
  }
  use_indices(call, lookup, [&](const at::Tensor&) { return place; });
  call.use(0, place);
  call.run();
  place_looked_up(
      call, self, lookup, Shard(0, call.axis().cut_at(cut->points)),
      cut->points.back());
  return true;
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
  if (lookup.masks && index_by_mask(call, self, lookup)) {
    return true;
  }
  const auto cut = cut_of_indices(call, lookup);
  if (place.is_shard() && lookup.dim_of[place.dim()] >= 0) {
    use_whole_indices(call, lookup);
    call.use_local(0);
    call.run();
    place_looked_up(
        call, self, lookup, place.with_dim(lookup.dim_of[place.dim()]),
        self.size(place.dim()));
    return true;
  }
  if (const auto own = dim_of_own_rows(call, self, lookup)) {
    use_own_rows(call, lookup, *own);
    call.use_local(0);
    call.run();
    place_looked_up(
        call, self, lookup, place.with_dim(lookup.first + *own),
        self.size(place.dim()));
    return true;
  }
  if (place.is_sum() && !cut) {
    use_whole_indices(call, lookup);
    call.use_local(0);
    call.run();
    place_looked_up(call, self, lookup, place);
    return true;
  }
  // Rows in another order are rows: all travel, and what follows is done in parts.
  const auto rows = cut ? cut
      : place.is_shard() ? cut_of_rows(call, lookup)
                         : std::nullopt;
  if (place.is_partial() || !rows) {
    return false;
  }
  const int64_t back = lookup.count - rows->dim();
  use_indices(call, lookup, [&](const at::Tensor& index) {
    return broadcast_cut(index, back, *rows);
  });
  call.use_whole(0);
  call.run();
  place_looked_up(
      call, self, lookup, rows->with_dim(lookup.first + rows->dim()),
      lookup.sizes[rows->dim()]);
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

/// The cut of values that are added, where it is one of the indices' dimensions; or
/// that of the indices, for values that all processes have.
std::optional<Placement> cut_of_added(const Call& call, const Lookup& lookup) {
  const at::Tensor values = call.tensor(2);
  const auto place = call.place(2);
  if (place.is_replicate()) {
    return cut_of_indices(call, lookup);
  }
  if (!place.is_shard() || values.size(place.dim()) == 1) {
    return {};
  }
  const int64_t dim = place.dim() + lookup.dims - values.dim() - lookup.first;
  return dim >= 0 && dim < lookup.count &&
          values.size(place.dim()) == lookup.sizes[dim]
      ? std::optional<Placement>(place.with_dim(dim))
      : std::nullopt;
}

/// What each process adds to the rows that its part of the indices names is its part
/// of the sum.
bool add_rows(Call& call, const at::Tensor& self, const Lookup& lookup) {
  const auto place = call.place(0);
  if (lookup.masks || call.info().is_in_place || !call.boolean(3) ||
      (place.is_partial() && !place.is_sum()) ||
      !at::isFloatingType(self.scalar_type())) {
    return false;
  }
  const auto rows = cut_of_added(call, lookup);
  if (!rows) {
    return false;
  }
  use_indices(call, lookup, [&](const at::Tensor& index) {
    return broadcast_cut(index, lookup.count - rows->dim(), *rows);
  });
  call.use(0, Partial());
  call.use(
      2,
      broadcast_cut(
          call.tensor(2), lookup.dims - lookup.first - rows->dim(), *rows));
  call.run();
  call.place_result(0, Partial(), self.sizes());
  return true;
}

/// The rows that a mask names, of those that a process has: `values` are cut as
/// `index_by_mask` leaves them.
bool put_rows_by_mask(Call& call, const at::Tensor& self, const Lookup& lookup) {
  const auto of_values = call.place(2);
  if (lookup.indices.size() != 1 || call.axis().further() != 0 ||
      !of_values.is_shard(0)) {
    return false;
  }
  const at::Tensor mask = *lookup.indices[0];
  auto place = call.place(0);
  if (place.is_replicate() && !call.info().is_in_place) {
    place = call.place(mask).is_replicate() ? Shard(0) : call.place(mask);
  }
  if (!names_rows(mask, self, place) || self.size(0) < call.axis().size() ||
      call.tensor(2).dim() != lookup.dims) {
    return false;
  }
  const auto local = call.local_as(mask, place);
  const auto cut = cut_of_selected(call, local);
  if (!cut || of_values != Shard(0, call.axis().cut_at(cut->points))) {
    return false;
  }
  use_indices(call, lookup, [&](const at::Tensor&) { return place; });
  call.use(0, place);
  call.use_local(2);
  call.run();
  leave_self(call, self, place);
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
  if (!look_up(self, call.at(1), lookup)) {
    return false;
  }
  if (lookup.masks && put_rows_by_mask(call, self, lookup)) {
    return true;
  }
  if (!place.is_shard()) {
    return add_rows(call, self, lookup);
  }
  const int64_t dim = lookup.dim_of[place.dim()];
  if (dim >= 0) {
    call.use(2, broadcast_cut(call.tensor(2), lookup.dims - dim, place));
    use_whole_indices(call, lookup);
  } else if (const auto own = dim_of_own_rows(call, self, lookup)) {
    call.use(
        2,
        broadcast_cut(
            call.tensor(2), lookup.dims - lookup.first - *own, place));
    use_own_rows(call, lookup, *own);
  } else if (add_rows(call, self, lookup)) {
    return true;
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

} // namespace

const Family& family() {
  static const char* const of_selected = "of rows by a mask: how many each process selects";
  static const char* const of_index =
      "dimensions that are not indexed; rows that arange(n) names; a cut index into a replicated tensor; rows by a mask; P";
  static const char* const gathers =
      "of rows in any order: all-gather of the tensor; of rows by a mask: how many each process selects";
  static const Family rows{
      {"aten::index.Tensor", index, of_index, gathers},
      {"aten::_unsafe_index.Tensor", index, of_index, gathers},
      {"aten::index_put", index_put, "dimensions that are not indexed; rows that arange(n) names; cut values that are added, of which P is left; rows by a mask; any for a number put by a mask", of_selected},
      {"aten::index_put_", index_put, "as index_put", of_selected},
      {"aten::_index_put_impl_", index_put, "as index_put", of_selected},
      {"aten::_unsafe_index_put", index_put, "as index_put", of_selected},
  };
  return rows;
}

} // namespace accel::distributed::indexing_rules
