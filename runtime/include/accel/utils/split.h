#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace accel {

/// First and one past the last element of process `rank`'s part of `length`
/// elements: contiguous parts in rank order, the first `length % world`
/// processes get one more.
ACCEL_API std::pair<int64_t, int64_t> split_range(
    int64_t length, int64_t rank, int64_t world);

namespace detail {
/// How many elements every process has with padding: the largest part. Throws
/// for nothing to pad with.
ACCEL_API int64_t padded_split_length(int64_t length, int64_t world);
ACCEL_API void check_split_lengths(size_t first, size_t other);
} // namespace detail

/// Process `rank`'s part of `inputs`. With `apply_padding` shorter parts are
/// filled up with the last element of `inputs`, so that all are equally long;
/// then `inputs` must not be empty. One process gets `inputs` as it is.
///
/// \code
/// split_between_processes(std::vector{"A", "B", "C"}, 1, 2);        // C
/// split_between_processes(std::vector{"A", "B", "C"}, 1, 2, true);  // C, C
/// \endcode
template <typename T, typename Allocator>
std::vector<T, Allocator> split_between_processes(
    const std::vector<T, Allocator>& inputs,
    int64_t rank,
    int64_t world,
    bool apply_padding = false) {
  const auto length = static_cast<int64_t>(inputs.size());
  const auto [begin, end] = split_range(length, rank, world);
  std::vector<T, Allocator> part(inputs.begin() + begin, inputs.begin() + end);
  if (apply_padding && world > 1) {
    // First, since it throws where there is no last element.
    const auto padded = detail::padded_split_length(length, world);
    part.resize(static_cast<size_t>(padded), inputs.back());
  }
  return part;
}

/// The same for the rows of a tensor (dimension 0); a view unless it is padded.
/// Throws for a distributed tensor.
ACCEL_API at::Tensor split_between_processes(
    const at::Tensor& inputs,
    int64_t rank,
    int64_t world,
    bool apply_padding = false);

/// The same for each value of a map; all must have the same length.
template <typename Map>
Map split_map_between_processes(
    const Map& inputs, int64_t rank, int64_t world, bool apply_padding) {
  Map parts;
  const auto length = [](const auto& value) -> size_t {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
      return value.dim() == 0 ? 0 : value.size(0);
    } else {
      return value.size();
    }
  };
  for (const auto& [name, value] : inputs) {
    detail::check_split_lengths(length(inputs.begin()->second), length(value));
    parts.emplace(
        name, split_between_processes(value, rank, world, apply_padding));
  }
  return parts;
}
/// The same for each value of a map.
template <typename Key, typename Value, typename... Rest>
std::map<Key, Value, Rest...> split_between_processes(
    const std::map<Key, Value, Rest...>& inputs,
    int64_t rank,
    int64_t world,
    bool apply_padding = false) {
  return split_map_between_processes(inputs, rank, world, apply_padding);
}
/// The same for each value of a map.
template <typename Key, typename Value, typename... Rest>
std::unordered_map<Key, Value, Rest...> split_between_processes(
    const std::unordered_map<Key, Value, Rest...>& inputs,
    int64_t rank,
    int64_t world,
    bool apply_padding = false) {
  return split_map_between_processes(inputs, rank, world, apply_padding);
}

} // namespace accel
