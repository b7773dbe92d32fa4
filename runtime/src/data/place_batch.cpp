#include <accel/data/place_batch.h>

#include <accel/detail/communicator.h>

#include "core/runtime.h"
#include "distributed/collectives.h"

#include <ATen/ATen.h>

namespace accel::detail {

torch::Tensor place_own_rows(const torch::Tensor& own, int64_t n) {
  auto& runtime = Runtime::require();
  auto& axis = runtime.axis();
  runtime.batch_rows = n;
  const auto range = RowRange::of(n, axis.rank(), axis.size());
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
  auto sizes = own.sizes().vec();
  sizes[0] = n;
  return distributed::make_tensor(axis, own, distributed::Shard(0), sizes);
}

torch::Tensor place_whole(const torch::Tensor& whole, int64_t n) {
  auto& axis = Runtime::require().axis();
  if (!whole.defined() || whole.dim() == 0 || whole.size(0) != n ||
      n < axis.size() || axis.size() == 1 ||
      whole.layout() != at::kStrided) {
    return whole;
  }
  const auto range = RowRange::of(n, axis.rank(), axis.size());
  return place_own_rows(whole.narrow(0, range.offset, range.rows), n);
}

} // namespace accel::detail
