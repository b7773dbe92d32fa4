#include "distributed/host_reads.h"
#include "distributed/rules/views.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

// Views of some entries: rows, slices, pieces, windows, diagonals. As in
// views.cpp, a result is a view of the local tensor, and the `_copy` operators
// have the rules of their views.
//
// A view along the cut dimension (`x.slice(0, a, b)`, `x.chunk(2)`) stays in
// parts, too. Where the rows that remain are spread over the processes about
// evenly, each keeps its own; else the family's gathered value is what is
// viewed, and each process has its rows of that. Of rows in blocks whole blocks
// (queries, keys and values of one projection) are each process's own.

namespace accel::distributed::slicing_rules {
namespace {

using view_rules::in_parts;
using view_rules::is_balanced;
using view_rules::leave_view;
using view_rules::placed_view;
using view_rules::run_view;
using view_rules::run_view_to;

/// A dimension beside the cut one goes.
Placement without(const Placement& place, int64_t dim) {
  return place.is_shard() && place.dim() > dim ? place.with_dim(place.dim() - 1)
                                               : place;
}

bool select(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  if (is_read_by_elements(self, place)) {
    return false; // the gathered value's, which is kept for the next one
  }
  const int64_t dim = call.dim(1, self.dim());
  if (place.is_shard(dim)) {
    return false; // one process' row is a row of all: the gathered value's
  }
  Sizes sizes = sizes_of(self);
  sizes.erase(sizes.begin() + dim);
  return run_view(call, without(place, dim), sizes);
}

/// Rows `[begin, end)` of the cut dimension in steps.
struct Range {
  int64_t begin;
  int64_t end;
  int64_t step;

  /// How many of them lie before row `row` of the whole.
  int64_t before(int64_t row) const {
    const int64_t last = std::min(row, end);
    return last <= begin ? 0 : (last - begin + step - 1) / step;
  }
};

/// Of a view of the cut dimension, gathered: this process's rows, or all where
/// they are fewer than processes.
at::Tensor view_of_gathered(
    const Call& call,
    const at::Tensor& whole,
    int64_t dim) {
  const auto place =
      whole.size(dim) < call.axis().size() ? Replicate() : Shard(dim);
  auto local = place.is_shard() ? own_rows(call.axis(), whole, place) : whole;
  if (!call.info().is_view) {
    local = local.clone(at::MemoryFormat::Contiguous);
  }
  return placed_view(call, local, place, whole.sizes());
}

bool slice_cut_rows(Call& call, int64_t dim, const Range& range) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto& axis = call.axis();
  const int64_t n = self.size(dim);
  Sizes sizes = sizes_of(self);
  sizes[dim] = range.before(n);
  std::vector<int64_t> points;
  for (int64_t rank = 0; rank < axis.size(); ++rank) {
    points.push_back(
        range.before(axis.range(n, place.cut(), rank).first));
  }
  points.push_back(sizes[dim]);
  if (!is_balanced(points)) {
    const auto whole = whole_of(call.part(self))
                           .slice(dim, range.begin, range.end, range.step);
    const auto result = view_of_gathered(call, whole, dim);
    call.finish({result});
    return true;
  }
  // The first row of this part that is taken.
  const int64_t first =
      range.begin + points[axis.rank()] * range.step -
      axis.range(n, place.cut()).first;
  const int64_t rows = points[axis.rank() + 1] - points[axis.rank()];
  const auto local = call.local(0).slice(
      dim, first, first + (rows - 1) * range.step + 1, range.step);
  return leave_view(
      call, local, Shard(dim, axis.cut_at(std::move(points))), sizes);
}

/// Of a dimension that is cut in blocks: `count` of them, of so many rows each in
/// the whole tensor.
struct Blocks {
  int64_t count;
  int64_t rows;
};

/// Rows `[begin, end)` as blocks; nothing where they are no whole ones.
std::optional<Blocks> whole_blocks(
    const at::Tensor& self,
    const Placement& place,
    int64_t begin,
    int64_t end) {
  const int64_t rows = self.size(place.dim()) / place.cut()->blocks;
  if (rows == 0 || end <= begin || begin % rows != 0 || end % rows != 0) {
    return {};
  }
  return Blocks{(end - begin) / rows, rows};
}

/// The same cut of so many blocks.
Placement with_blocks(const Call& call, const Placement& place, int64_t count) {
  return Shard(place.dim(), call.axis().cut_at(place.cut()->points, count));
}

bool slice_blocks(Call& call, const Range& range) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const auto blocks = whole_blocks(self, place, range.begin, range.end);
  if (!blocks || range.step != 1) {
    return false;
  }
  const int64_t own = call.local(0).size(place.dim()) / place.cut()->blocks;
  const int64_t first = range.begin / blocks->rows * own;
  Sizes sizes = sizes_of(self);
  sizes[place.dim()] = range.end - range.begin;
  return leave_view(
      call,
      call.local(0).slice(place.dim(), first, first + blocks->count * own),
      with_blocks(call, place, blocks->count), sizes);
}

/// split: pieces of whole blocks.
bool split_blocks(Call& call) {
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const int64_t dim = place.dim();
  auto sizes = call.integers(1);
  if (call.at(1).isInt()) {
    const int64_t piece = sizes[0];
    sizes.clear();
    for (int64_t row = 0; piece > 0 && row < self.size(dim); row += piece) {
      sizes.push_back(std::min(piece, self.size(dim) - row));
    }
  }
  const int64_t own = call.local(0).size(dim) / place.cut()->blocks;
  std::vector<Blocks> pieces;
  int64_t row = 0;
  for (const int64_t size : sizes) {
    const auto blocks = whole_blocks(self, place, row, row + size);
    if (!blocks) {
      return false;
    }
    pieces.push_back(*blocks);
    row += size;
  }
  if (pieces.empty() || row != self.size(dim)) {
    return false; // an error
  }
  std::vector<at::Tensor> list;
  int64_t first = 0;
  for (const auto& piece : pieces) {
    auto local = call.local(0).narrow(dim, first, piece.count * own);
    first += piece.count * own;
    if (!call.info().is_view) {
      local = local.clone(at::MemoryFormat::Contiguous);
    }
    Sizes of_piece = sizes_of(self);
    of_piece[dim] = piece.count * piece.rows;
    list.push_back(placed_view(
        call, local, with_blocks(call, place, piece.count), of_piece));
  }
  call.finish({std::move(list)});
  return true;
}

bool slice(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const int64_t dim = call.dim(1, self.dim());
  const int64_t n = self.size(dim);
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t row = call.at(i).isNone() ? otherwise : call.integer(i);
    return std::clamp<int64_t>(row < 0 ? row + n : row, 0, n);
  };
  Range range{bound(2, 0), bound(3, n), call.integer(4)};
  range.end = std::max(range.begin, range.end);
  if (range.step <= 0) {
    return false; // an error
  }
  if (place.is_shard(dim) && place.in_blocks()) {
    return slice_blocks(call, range);
  }
  if (place.is_shard(dim)) {
    return !cut_further(call, 0, dim) &&
        slice_cut_rows(call, dim, range);
  }
  Sizes sizes = sizes_of(self);
  sizes[dim] = range.before(n);
  return run_view(call, place, sizes);
}

/// narrow_copy.
bool narrow(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const int64_t dim = call.dim(1, call.tensor(0).dim());
  if (call.place(0).is_shard(dim)) {
    return false;
  }
  Sizes sizes = sizes_of(call.tensor(0));
  sizes[dim] = call.integer(3);
  return run_view(call, call.place(0), sizes);
}

/// A list of views; `dim` is the one that is divided and `keeps` says whether
/// the results have it.
bool pieces(Call& call, size_t dim_argument, bool keeps) {
  if (!in_parts(call)) {
    return false;
  }
  const at::Tensor self = call.tensor(0);
  const auto place = call.place(0);
  const int64_t dim = call.dim(dim_argument, self.dim());
  const bool of_cut = place.is_shard(dim);
  if (of_cut && (!keeps || cut_further(call, 0, dim))) {
    return false;
  }
  call.set(0, of_cut ? whole_of(call.part(self)) : call.local(0));
  call.run();
  auto list = call.result().toTensorVector();
  const auto result = keeps ? place : without(place, dim);
  for (auto& piece : list) {
    if (of_cut) {
      piece = view_of_gathered(call, piece, dim);
      continue;
    }
    Sizes sizes = sizes_of(piece);
    if (result.is_shard()) {
      sizes[result.dim()] = self.size(place.dim());
    }
    piece = placed_view(call, piece, result, sizes);
  }
  call.result() = std::move(list);
  return true;
}

bool split(Call& call) {
  if (in_parts(call)) {
    const auto place = call.place(0);
    if (place.in_blocks() &&
        place.is_shard(call.dim(2, call.tensor(0).dim()))) {
      return split_blocks(call);
    }
  }
  return pieces(call, 2, /*keeps=*/true);
}

bool unbind(Call& call) {
  return pieces(call, 1, /*keeps=*/false);
}

/// unfold: the windows come behind the other dimensions.
bool unfold(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const int64_t dim = call.dim(1, call.tensor(0).dim());
  return !call.place(0).is_shard(dim) && run_view_to(call, call.place(0));
}

/// diagonal: the two dimensions go, theirs comes behind the others.
bool diagonal(Call& call) {
  if (!in_parts(call)) {
    return false;
  }
  const auto place = call.place(0);
  const int64_t dims = call.tensor(0).dim();
  const int64_t a = call.dim(2, dims);
  const int64_t b = call.dim(3, dims);
  if (place.is_shard(a) || place.is_shard(b)) {
    return false;
  }
  return run_view_to(
      call, without(without(place, std::max(a, b)), std::min(a, b)));
}

} // namespace

const Family& family() {
  static const char* const none = "nothing";
  static const char* const beside = "dimensions beside the selected one; P";
  static const char* const pieces_move =
      "of the cut dimension: all-gather of the tensor, once for all its views; "
      "nothing of whole blocks";
  static const char* const rows_move =
      "of the cut dimension, where the rows are not spread evenly: all-gather "
      "of the tensor, once for all its views";
  static const Family rows{
      {"aten::select.int", select, beside,
       "of an element of a vector that is P, outside of a graph: all-reduce of the vector, once for all elements"},
      {"aten::slice.Tensor", slice, "any", rows_move},
      {"aten::split.Tensor", split, "any", pieces_move},
      {"aten::split_with_sizes", split, "any", pieces_move},
      {"aten::unbind.int", unbind, beside, none},
      {"aten::unfold", unfold, beside, none},
      {"aten::diagonal", diagonal, beside, none},
      {"aten::select_copy.int", select, beside, none},
      {"aten::slice_copy.Tensor", slice, "any", rows_move},
      {"aten::narrow_copy", narrow, beside, none},
      {"aten::split_copy.Tensor", split, "any", pieces_move},
      {"aten::split_with_sizes_copy", split, "any", pieces_move},
      {"aten::unsafe_split.Tensor", split, "any", pieces_move},
      {"aten::unsafe_split_with_sizes", split, "any", pieces_move},
      {"aten::unbind_copy.int", unbind, beside, none},
      {"aten::unfold_copy", unfold, beside, none},
      {"aten::diagonal_copy", diagonal, beside, none},
  };
  return rows;
}

} // namespace accel::distributed::slicing_rules
