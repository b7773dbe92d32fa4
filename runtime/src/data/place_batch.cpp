#include <accel/data/place_batch.h>

#include <accel/detail/communicator.h>

#include "core/runtime.h"
#include "distributed/collectives.h"

#include <ATen/ATen.h>

namespace accel::detail {

namespace {

/// The tensor of `n` rows, of which `own` are this process's, along the axes from
/// `axis` on.
torch::Tensor along(
    const std::vector<distributed::Axis*>& axes,
    size_t axis,
    const torch::Tensor& own,
    int64_t n) {
  if (axis == axes.size()) {
    return own;
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
  return along(runtime.batch_axes(), 0, own, n);
}

torch::Tensor place_whole(const torch::Tensor& whole, int64_t n) {
  if (!whole.defined() || whole.dim() == 0 || whole.size(0) != n ||
      whole.layout() != at::kStrided) {
    return whole;
  }
  const auto range =
      sharding_options().rows(n, Runtime::require().state().process_index());
  return range.rows == n
      ? whole
      : place_own_rows(whole.narrow(0, range.offset, range.rows), n);
}

} // namespace accel::detail
