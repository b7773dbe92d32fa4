#include "distributed/rules/product.h"

namespace accel::distributed {
namespace {

/// Elements that a process sends and receives until `elements` of a tensor lie
/// otherwise, times processes over others. What is a part of a sum is sent twice
/// until all have the sum.
int64_t cost_of_moving(
    const Placement& from,
    const Placement& to,
    int64_t elements,
    int64_t processes) {
  if (from == to || from.is_replicate()) {
    return 0;
  }
  if (to.is_shard()) {
    return from.is_shard() ? elements / processes : elements;
  }
  return from.is_shard() ? elements : 2 * elements;
}

} // namespace

bool comes_whole(const Call& call, const at::Tensor& tensor) {
  Part* part = call.part(tensor);
  if (part == nullptr) {
    return false;
  }
  const Part* root = root_of(part);
  return root->unit != nullptr || root->keeps_whole;
}

Factors factors_of(const Call& call, size_t left, size_t right) {
  const auto& l = call.tensor(left);
  const auto& r = call.tensor(right);
  const auto end = [](const at::Tensor& tensor, int64_t back) {
    return tensor.dim() < back ? int64_t{1} : tensor.size(-back);
  };
  return {
      call.place(left),
      call.place(right),
      end(l, 2),
      end(l, 1),
      r.dim() < 2 ? 1 : end(r, 1),
      call.axis().size(),
      comes_whole(call, l),
      comes_whole(call, r)};
}

bool choose(const Factors& factors, Product& out) {
  const auto& left = factors.left;
  const auto& right = factors.right;
  bool found = false;
  int64_t least = 0;
  const auto consider = [&](const Placement& l, const Placement& r,
                            const Placement& result) {
    int64_t cost =
        result.is_partial() ? 2 * factors.n * factors.m : int64_t{0};
    if (!(factors.left_comes_whole && l.is_replicate())) {
      cost += cost_of_moving(left, l, factors.n * factors.k, factors.processes);
    }
    if (!(factors.right_comes_whole && r.is_replicate())) {
      cost += cost_of_moving(right, r, factors.k * factors.m, factors.processes);
    }
    if (!found || cost < least) {
      out = {l, r, result};
      least = cost;
    }
    found = true;
  };
  if (left.is_shard(0)) {
    consider(left, Replicate(), left);
  }
  if (right.is_shard(1)) {
    consider(Replicate(), right, right);
  }
  // A matrix between the rows of a batch, as a graph's: of the result each process
  // makes its own rows.
  if (right.is_shard(0) && left.is_replicate() && factors.n == factors.k) {
    consider(right, Replicate(), right);
  }
  if (left.is_shard(1) && right.is_replicate() && factors.k == factors.m) {
    consider(Replicate(), left, left);
  }
  if (left.is_shard(1)) {
    consider(left, left.with_dim(0), Partial());
  }
  if (right.is_shard(0)) {
    consider(right.with_dim(1), right, Partial());
  }
  if (!found && left.is_sum() && !right.is_partial()) {
    consider(left, Replicate(), Partial());
  }
  if (!found && right.is_sum() && !left.is_partial()) {
    consider(Replicate(), right, Partial());
  }
  return found;
}

} // namespace accel::distributed
