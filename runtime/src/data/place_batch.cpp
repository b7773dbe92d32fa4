#include <accel/data/place_batch.h>

#include <accel/detail/communicator.h>
#include <accel/distributed/tensor.h>

#include "core/runtime.h"
#include "distributed/collectives.h"
#include "distributed/lineage.h"
#include "distributed/part.h"

#include <ATen/ATen.h>

namespace accel::detail {

namespace {

/// The positions of each sequence, dimension 1, shared out; `own` itself where
/// nothing is to be, or where there are fewer than processes.
torch::Tensor along_sequence(distributed::Axis* axis, const torch::Tensor& own) {
  if (axis == nullptr || own.dim() < 2 || own.size(1) < axis->size()) {
    return own;
  }
  const auto [begin, end] = axis->range(own.size(1), {});
  return distributed::make_tensor(
      *axis, own.narrow(1, begin, end - begin).contiguous(),
      distributed::Shard(1), own.sizes());
}

/// The tensor of `n` rows, of which `own` are this process's, along the axes from
/// `axis` on, and along that of sequences.
torch::Tensor along(
    const std::vector<distributed::Axis*>& axes,
    size_t axis,
    const torch::Tensor& own,
    int64_t n) {
  if (axis == axes.size()) {
    return along_sequence(Runtime::require().sequence_axis(), own);
  }
  if (n < axes[axis]->size()) {
    return along(axes, axis + 1, own, n);
  }
  auto sizes = own.sizes().vec();
  sizes[0] = n;
  return distributed::make_tensor(
      *axes[axis], along(axes, axis + 1, own, axes[axis]->rows(n, {})),
      distributed::Shard(0), sizes);
}

/// `whole`, of a batch of `n` samples, in parts along a dimension; as it is where there
/// are fewer samples than processes.
torch::Tensor cut_along(const torch::Tensor& whole, int64_t dim, int64_t n) {
  auto& runtime = Runtime::require();
  const auto& axes = runtime.batch_axes();
  if (n < axes[0]->size()) {
    return whole;
  }
  runtime.enter_batch(n);
  auto placed = distributed::distribute_tensor(
      whole, distributed::DeviceMesh(axes), {distributed::Shard(dim)});
  distributed::inherit_lineage(placed, distributed::lineage_of_plain(whole));
  distributed::set_batch(placed, whole);
  return placed;
}

} // namespace

torch::Tensor place_own_rows(const torch::Tensor& own, int64_t n) {
  auto& runtime = Runtime::require();
  runtime.enter_batch(n);
  const auto range =
      sharding_options().rows(n, runtime.state().process_index());
  TORCH_CHECK(
      own.dim() > 0 && own.size(0) == range.rows,
      "accel: the data set was asked for ",
      range.rows,
      " of the ",
      n,
      " samples of a batch, and returned a tensor of sizes ",
      own.sizes(),
      ". Where it does not return a row for each index, specialise "
      "accel::data::loads_rows to std::false_type for it.");
  distributed::install();
  const distributed::InsideGuard inside;
  auto placed = along(runtime.batch_axes(), 0, own, n);
  distributed::set_batch(placed);
  return placed;
}

bool has_rows(const torch::Tensor& tensor, int64_t n) {
  return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == n;
}

torch::Tensor place_whole(const torch::Tensor& whole, int64_t n, int64_t dim) {
  if (!whole.defined() || whole.dim() <= dim || whole.size(dim) != n ||
      whole.layout() != at::kStrided) {
    return whole;
  }
  auto& runtime = Runtime::require();
  const auto range =
      sharding_options().rows(n, runtime.state().process_index());
  const bool in_sequences = runtime.sequence_axis() != nullptr;
  if (range.rows == n && !in_sequences) {
    return whole;
  }
  if (dim == 0) {
    auto placed =
        place_own_rows(whole.narrow(0, range.offset, range.rows), n);
    distributed::inherit_lineage(placed, distributed::lineage_of_plain(whole));
    distributed::set_batch(placed, whole);
    return placed;
  }
  return in_sequences || runtime.batch_axes().size() != 1
      ? whole
      : cut_along(whole, dim, n);
}

torch::Tensor place_beside(const torch::Tensor& whole, int64_t n) {
  const auto& runtime = Runtime::require();
  if (!whole.defined() || whole.dim() == 0 || whole.layout() != at::kStrided ||
      runtime.sequence_axis() != nullptr || runtime.batch_axes().size() != 1 ||
      sharding_options().rows(n, runtime.state().process_index()).rows == n) {
    return whole;
  }
  const int64_t columns = whole.dim() > 1 ? whole.size(1) : 0;
  const bool integers =
      at::isIntegralType(whole.scalar_type(), /*includeBool=*/false);
  const bool edges =
      integers && whole.dim() == 2 && whole.size(0) == 2 && columns > n;
  if (columns == n || edges) {
    return cut_along(whole, 1, n);
  }
  // Where each sample begins, and the last one ends, is read one by one.
  const bool offsets = integers && whole.dim() == 1 && whole.size(0) == n + 1;
  return whole.size(0) > n && !offsets ? cut_along(whole, 0, n) : whole;
}

} // namespace accel::detail
