#include <accel/utils/split.h>

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace accel {

std::pair<int64_t, int64_t> split_range(
    int64_t length, int64_t rank, int64_t world) {
  TORCH_CHECK(
      world >= 1 && rank >= 0 && rank < world,
      "There is no process ",
      rank,
      " of ",
      world,
      ".");
  const int64_t each = length / world;
  const int64_t more = length % world;
  const int64_t begin = each * rank + std::min(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

int64_t detail::padded_split_length(int64_t length, int64_t world) {
  TORCH_CHECK(
      length > 0,
      "split_between_processes: there is nothing to pad with, the input is "
      "empty.");
  return (length + world - 1) / world;
}

void detail::check_split_lengths(size_t first, size_t other) {
  TORCH_CHECK(
      first == other,
      "split_between_processes: all values of a map must have the same length, "
      "but one has ",
      first,
      " elements and another ",
      other,
      ".");
}

at::Tensor split_between_processes(
    const at::Tensor& inputs, int64_t rank, int64_t world, bool apply_padding) {
  TORCH_CHECK(
      inputs.dim() > 0,
      "split_between_processes: a scalar tensor has no rows to split.");
  TORCH_CHECK(
      !distributed::is_distributed(inputs),
      "split_between_processes was given a distributed tensor of sizes ",
      inputs.sizes(),
      ", which the processes share already. Give it full(tensor), which each "
      "process has.");
  const int64_t length = inputs.size(0);
  const auto [begin, end] = split_range(length, rank, world);
  const auto part = inputs.slice(0, begin, end);
  if (!apply_padding || world == 1) {
    return part;
  }
  const int64_t missing =
      detail::padded_split_length(length, world) - part.size(0);
  if (missing == 0) {
    return part;
  }
  auto shape = inputs.sizes().vec();
  shape[0] = missing;
  return at::cat({part, inputs.slice(0, length - 1).expand(shape)});
}

} // namespace accel
