#include "distributed/rules/common.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

// Joining tensors: beside the cut dimension it is done in parts. Along the cut
// dimension the rows of the result lie on other processes than those of the
// inputs: these are gathered, and each process keeps its rows of the result, so
// that what follows is shared out (a network on `cat({real, fake})`). So are rows
// that a program took out of a batch one by one, changed, and puts together again.
// Features that are cut alike become blocks (gradients of queries, keys and values).

namespace accel::distributed::joining_rules {
namespace {

/// What is joined. Empty vectors (`[0]`), which cat passes over whatever their
/// dimensions are, are left out.
struct Joined {
  std::vector<at::Tensor> tensors;
  /// The cut of the first tensor that is cut beside `dim`. Not of the largest:
  /// along further axes of a mesh sizes are not the same on all processes.
  std::optional<Placement> beside;
  bool cut_along = false;
  /// Every tensor is a part of a sum or replicated, and all are of one dtype.
  bool sums = true;
  /// No tensor is more than replicated.
  bool replicated = true;
};

Joined look(const Call& call, std::optional<int64_t> along) {
  Joined all;
  for (auto& tensor : call.tensors(0)) {
    if (along && tensor.dim() == 1 && tensor.size(0) == 0) {
      continue;
    }
    const auto place = call.place(tensor);
    if (place.is_shard() && along && place.dim() == *along) {
      all.cut_along = true;
    } else if (place.is_shard() && !all.beside) {
      all.beside = place;
    }
    all.tensors.push_back(std::move(tensor));
    all.sums = all.sums && (place.is_replicate() || place.is_sum()) &&
        all.tensors.back().scalar_type() == all.tensors[0].scalar_type();
    all.replicated = all.replicated && place.is_replicate();
  }
  return all;
}

void use_all(Call& call, Joined& joined, const Placement& to) {
  for (auto& tensor : joined.tensors) {
    tensor = call.local_as(tensor, to);
  }
  call.set(0, std::move(joined.tensors));
}

bool same_dims(const Joined& joined) {
  for (const auto& tensor : joined.tensors) {
    if (tensor.dim() != joined.tensors[0].dim()) {
      return false; // an error
    }
  }
  return !joined.tensors.empty() && joined.tensors[0].dim() > 0;
}

/// Where all tensors are cut along `dim`, at the same points: the cut of what is
/// joined, in blocks. Nothing where they are not.
std::optional<Placement> blocks_along(
    const Call& call,
    const Joined& joined,
    int64_t dim) {
  const int64_t processes = call.axis().size();
  std::vector<int64_t> points;
  int64_t blocks = 0;
  for (const auto& tensor : joined.tensors) {
    const auto place = call.place(tensor);
    if (!place.is_shard(dim)) {
      return {};
    }
    const auto& cut = place.cut();
    std::vector<int64_t> own;
    if (cut) {
      own = cut->points;
    } else {
      for (int64_t rank = 0; rank < processes; ++rank) {
        own.push_back(call.axis().range(tensor.size(dim), cut, rank).first);
      }
      own.push_back(tensor.size(dim));
    }
    if (!points.empty() && points != own) {
      return {};
    }
    points = std::move(own);
    blocks += cut ? cut->blocks : 1;
  }
  return Shard(dim, call.axis().cut_at(std::move(points), blocks));
}

/// Every process has all of what is joined, and keeps its rows along `dim`.
bool own_rows_of_all(
    Call& call, Joined& joined, int64_t dim, const Sizes& sizes) {
  if (sizes[dim] < call.axis().size()) {
    return false;
  }
  const Placement place = Shard(dim);
  use_all(call, joined, Replicate());
  call.run();
  call.result() = own_rows(call.axis(), call.local_result(), place).clone();
  call.place_result(0, place, sizes);
  return true;
}

bool cat(Call& call) {
  if (has_out(call)) {
    return false;
  }
  int64_t dims = 0;
  for (const auto& tensor : call.tensors(0)) {
    dims = std::max(dims, tensor.dim());
  }
  const int64_t dim = call.dim(1, dims);
  auto joined = look(call, dim);
  if (!same_dims(joined)) {
    return false;
  }
  Sizes sizes = sizes_of(joined.tensors[0]);
  sizes[dim] = 0;
  for (const auto& tensor : joined.tensors) {
    sizes[dim] += tensor.size(dim);
    for (int64_t d = 0; d < dims; ++d) {
      if (d != dim && tensor.size(d) != sizes[d]) {
        return false; // an error
      }
    }
  }
  if (joined.beside) {
    const auto place = *joined.beside;
    use_all(call, joined, place);
    call.run();
    call.place_result(0, place, sizes);
    return true;
  }
  // Rows stay ranges, which every operator takes.
  const auto blocks = joined.cut_along && dims > 1 && dim == dims - 1
      ? blocks_along(call, joined, dim)
      : std::nullopt;
  if (blocks) {
    for (auto& tensor : joined.tensors) {
      tensor = at::Tensor(call.local(tensor));
    }
    call.set(0, std::move(joined.tensors));
    call.run();
    call.place_result(0, *blocks, sizes);
    return true;
  }
  if (joined.cut_along || (joined.replicated && dim == 0)) {
    return own_rows_of_all(call, joined, dim, sizes);
  }
  if (joined.sums && !joined.replicated) {
    use_all(call, joined, Partial());
    call.run();
    call.place_result(0, Partial(), sizes);
    return true;
  }
  return false;
}

bool stack(Call& call) {
  if (has_out(call)) {
    return false;
  }
  auto joined = look(call, {});
  if (joined.tensors.empty()) {
    return false;
  }
  Sizes sizes = sizes_of(joined.tensors[0]);
  for (const auto& tensor : joined.tensors) {
    if (tensor.sizes() != joined.tensors[0].sizes()) {
      return false; // an error
    }
  }
  const int64_t dim = call.dim(1, static_cast<int64_t>(sizes.size()) + 1);
  sizes.insert(
      sizes.begin() + dim, static_cast<int64_t>(joined.tensors.size()));
  if (joined.beside) {
    const auto place = *joined.beside;
    use_all(call, joined, place);
    call.run();
    call.place_result(
        0, place.dim() >= dim ? place.with_dim(place.dim() + 1) : place, sizes);
    return true;
  }
  if (joined.replicated) {
    return own_rows_of_all(call, joined, dim, sizes);
  }
  if (joined.sums) {
    use_all(call, joined, Partial());
    call.run();
    call.place_result(0, Partial(), sizes);
    return true;
  }
  return false;
}

/// Blocks of sums are a sum of blocks.
bool block_diag(Call& call) {
  if (has_out(call)) {
    return false;
  }
  auto joined = look(call, {});
  if (joined.beside || !joined.sums || joined.replicated || joined.tensors.empty()) {
    return false;
  }
  use_all(call, joined, Partial());
  call.run();
  call.place_result(0, Partial());
  return true;
}

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::cat", cat, "any", "along the cut dimension: all-gather of the tensors; nothing where features are cut alike"},
      {"aten::stack", stack, "any", "nothing"},
      {"aten::block_diag", block_diag, "P", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::joining_rules
