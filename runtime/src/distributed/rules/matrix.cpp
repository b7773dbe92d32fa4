#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Matrix products. Rows of the left and columns of the right factor stay where
// they are; where the dimension is cut over which is summed, the result is a
// part of a sum.

namespace accel::distributed {
namespace {

/// How the factors and the result of `[…, n, k] x […, k, m]` are placed.
struct Product {
  Placement left;
  Placement right;
  Placement result;
};

/// By what is there already. `rows`, `inner` and `columns` are dimensions of
/// the left factor's rows, of the summed dimension (left, right), and of the
/// right factor's columns. False where neither factor is in parts.
bool choose(
    const Placement& left,
    const Placement& right,
    Product& out) {
  if (left.is_shard(0)) {
    out = {left, Replicate(), left};
  } else if (right.is_shard(1)) {
    out = {Replicate(), right, right};
  } else if (left.is_shard(1)) {
    out = {left, left.with_dim(0), Partial()};
  } else if (right.is_shard(0)) {
    out = {right.with_dim(1), right, Partial()};
  } else if (left.is_sum() && !right.is_partial()) {
    out = {left, Replicate(), Partial()};
  } else if (right.is_sum() && !left.is_partial()) {
    out = {Replicate(), right, Partial()};
  } else {
    return false;
  }
  return true;
}

bool mm(Call& call) {
  Product product;
  if (!choose(call.place(0), call.place(1), product)) {
    return false;
  }
  const Sizes sizes{call.tensor(0).size(0), call.tensor(1).size(1)};
  call.use(0, product.left);
  call.use(1, product.right);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

bool addmm(Call& call) {
  Product product;
  if (!choose(call.place(1), call.place(2), product)) {
    return false;
  }
  const Sizes sizes{call.tensor(1).size(0), call.tensor(2).size(1)};
  const auto& bias = call.tensor(0);
  Placement of_bias = product.result;
  if (of_bias.is_shard()) {
    // Counted from the back, as it is broadcast.
    const int64_t dim = bias.dim() - (2 - of_bias.dim());
    of_bias = dim < 0 || bias.size(dim) == 1 ? Replicate() : of_bias.with_dim(dim);
  }
  call.use(0, of_bias);
  call.use(1, product.left);
  call.use(2, product.right);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

bool bmm(Call& call) {
  const auto left = call.place(0);
  const auto right = call.place(1);
  const Sizes sizes{
      call.tensor(0).size(0), call.tensor(0).size(1), call.tensor(1).size(2)};
  Product product;
  if (left.is_shard(0) || right.is_shard(0)) {
    const auto rows = left.is_shard(0) ? left : right;
    product = {rows, rows, rows};
  } else if (choose(
                 left.is_shard() ? left.with_dim(left.dim() - 1) : left,
                 right.is_shard() ? right.with_dim(right.dim() - 1) : right,
                 product)) {
    for (auto* placement : {&product.left, &product.right, &product.result}) {
      if (placement->is_shard()) {
        *placement = placement->with_dim(placement->dim() + 1);
      }
    }
  } else {
    return false;
  }
  call.use(0, product.left);
  call.use(1, product.right);
  call.run();
  call.place_result(0, product.result, sizes);
  return true;
}

} // namespace

const Family& matrix_family() {
  static const Family rows{
      {"aten::mm", mm, "rows, columns, summed dimension, P", "nothing"},
      {"aten::addmm", addmm, "rows, columns, summed dimension", "nothing"},
      {"aten::bmm", bmm, "batch, rows, columns, summed dimension, P", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed
