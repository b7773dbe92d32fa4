#include "distributed/rules/common.h"
#include "distributed/rules/reduced_rows.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

// Rows that an index names along one dimension: read, written, added to. Beside
// that dimension every part does it by itself; reading is linear, and what a
// process adds of its own rows is a part of the sum.

namespace accel::distributed::index_rows_rules {
namespace {

// ---- Rows named by an index

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
  // Rows in another order are rows: all travel, and what follows is done in parts.
  const int64_t n = call.tensor(2).numel();
  if (place.is_shard(dim) && call.tensor(2).dim() == 1 &&
      n >= call.axis().size()) {
    call.use_whole(0);
    call.use(2, Shard(0));
    call.run();
    call.place_result(0, Shard(dim), n);
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
  const int64_t dim = call.dim(1, self.dim());
  const std::string_view name = call.name();
  const bool adds = name == "aten::index_add" || name == "aten::index_add_";
  auto of_source = call.place(3);
  if (adds && of_source.is_replicate() && call.place(2).is_shard()) {
    of_source = call.place(2).with_dim(dim); // the rows that a cut index names
  }
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
  if (name == "aten::index_reduce" || name == "aten::index_reduce_") {
    return reduced_rows_rules::reduce_cut_rows(call, dim, /*in_index=*/0);
  }
  if (!adds || (place.is_partial() && !place.is_sum()) ||
      (in_place && !place.is_sum()) ||
      (place.is_shard() && !of_source.is_shard(dim))) {
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
  // As index_select: all travel, and what follows is done in parts.
  if (place.is_shard(dim) && of_index.is_replicate() && index.dim() == self.dim() &&
      index.size(dim) >= call.axis().size()) {
    call.use_whole(0);
    call.use(2, Shard(dim));
    call.run();
    call.place_result(0, Shard(dim), index.sizes());
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
  if (call.overload() == "value" && !in_place) {
    return reduced_rows_rules::set_named_entries(call, dim);
  }
  if (name == "aten::scatter_reduce" || name == "aten::scatter_reduce_") {
    return reduced_rows_rules::reduce_cut_rows(call, dim, /*in_index=*/dim);
  }
  if (name != "aten::scatter_add" && name != "aten::scatter_add_") {
    return false;
  }
  // What a process adds of its own part is a part of the sum.
  const auto of_index =
      call.place(2).is_shard(dim) || !call.place(3).is_shard(dim) ? call.place(2)
                                                                  : call.place(3);
  if (!of_index.is_shard(dim) || (place.is_partial() && !place.is_sum()) ||
      (in_place && !place.is_sum()) || call.tensor(3).dim() != call.tensor(2).dim() ||
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

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const beside = "dimensions that are not indexed";
  static const char* const rows_of_index =
      "dimensions that are not indexed; a cut index; P";
  static const char* const meeting = "dimensions that are not indexed; a cut source or index";
  static const char* const reduces =
      "for a cut source or index: all-reduce of the result, and of how many rows meet in "
      "an entry where that counts";
  static const char* const gathers_table =
      "for a cut index: all-gather of what it looks into, where that is cut";
  static const Family rows{
      {"aten::index_select", index_select, rows_of_index, gathers_table},
      {"aten::index_add", index_write, "dimensions that are not indexed; a cut source or index, of which P is left", none},
      {"aten::index_add_", index_write, "dimensions that are not indexed; P", none},
      {"aten::index_copy", index_write, beside, none},
      {"aten::index_copy_", index_write, beside, none},
      {"aten::index_reduce", index_write, meeting, reduces},
      {"aten::index_reduce_", index_write, meeting, reduces},
      {"aten::index_fill.int_Scalar", index_fill, beside, none},
      {"aten::index_fill.int_Tensor", index_fill, beside, none},
      {"aten::index_fill_.int_Scalar", index_fill, beside, none},
      {"aten::index_fill_.int_Tensor", index_fill, beside, none},
      {"aten::gather", gather, rows_of_index, gathers_table},
      {"aten::scatter.src", scatter, beside, none},
      {"aten::scatter.value", scatter, meeting, "for a cut index, or a tensor cut where it is indexed: all-reduce of which entries it names"},
      {"aten::scatter.reduce", scatter, beside, none},
      {"aten::scatter.value_reduce", scatter, beside, none},
      {"aten::scatter_.src", scatter, beside, none},
      {"aten::scatter_.value", scatter, beside, none},
      {"aten::scatter_.reduce", scatter, beside, none},
      {"aten::scatter_.value_reduce", scatter, beside, none},
      {"aten::scatter_add", scatter, "dimensions that are not indexed; a cut source or index, of which P is left", none},
      {"aten::scatter_add_", scatter, "dimensions that are not indexed; P", none},
      {"aten::scatter_reduce.two", scatter, meeting, reduces},
      {"aten::scatter_reduce_.two", scatter, meeting, reduces},
      {"aten::take", take, "a cut index; P", gathers_table},
  };
  return rows;
}

} // namespace accel::distributed::index_rows_rules
