#pragma once

#include <torch/data/example.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace accel::data {

/// Cuts the samples `offset` … `offset + rows - 1` out of a batch of `global`
/// samples.
///
/// Knows tensors (samples along dimension 0), vectors (a sample per element),
/// `torch::data::Example`, and pairs, tuples and maps of such. For a batch type
/// of your own specialise it:
///
///     template <>
///     struct accel::data::RowsOf<MyBatch> {
///       static MyBatch take(
///           const MyBatch& batch, int64_t offset, int64_t rows, int64_t global);
///     };
///
/// `take` throws `c10::Error` where the batch does not have `global` samples.
template <typename Batch, typename = void>
struct RowsOf;

template <typename Batch, typename = void>
struct has_rows : std::false_type {};
template <typename Batch>
struct has_rows<
    Batch,
    std::void_t<decltype(RowsOf<Batch>::take(
        std::declval<const Batch&>(),
        int64_t(),
        int64_t(),
        int64_t()))>> : std::true_type {};

template <>
struct RowsOf<torch::Tensor> {
  static torch::Tensor take(
      const torch::Tensor& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    TORCH_CHECK(
        batch.dim() > 0 && batch.size(0) == global,
        "A batch of ",
        global,
        " samples was expected along dimension 0, but the data set returned a "
        "tensor of shape ",
        batch.sizes(),
        ". Return batches whose first dimension counts the samples, or load "
        "with torch::data::make_data_loader and split with "
        "accelerator.shard_batch.");
    return batch.narrow(0, offset, rows);
  }
};

template <typename Element>
struct RowsOf<std::vector<Element>> {
  static std::vector<Element> take(
      const std::vector<Element>& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    TORCH_CHECK(
        static_cast<int64_t>(batch.size()) == global,
        "A batch of ",
        global,
        " samples was expected, but the data set returned ",
        batch.size(),
        ". Return one element per index, or load with "
        "torch::data::make_data_loader and split with "
        "accelerator.shard_batch.");
    return {batch.begin() + offset, batch.begin() + offset + rows};
  }
};

template <typename Data, typename Target>
struct RowsOf<
    torch::data::Example<Data, Target>,
    std::enable_if_t<has_rows<Data>::value && has_rows<Target>::value>> {
  static torch::data::Example<Data, Target> take(
      const torch::data::Example<Data, Target>& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    return {
        RowsOf<Data>::take(batch.data, offset, rows, global),
        RowsOf<Target>::take(batch.target, offset, rows, global)};
  }
};

template <typename Data>
struct RowsOf<
    torch::data::Example<Data, torch::data::example::NoTarget>,
    std::enable_if_t<has_rows<Data>::value>> {
  using Example = torch::data::Example<Data, torch::data::example::NoTarget>;

  static Example take(
      const Example& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    return Example(RowsOf<Data>::take(batch.data, offset, rows, global));
  }
};

template <typename First, typename Second>
struct RowsOf<
    std::pair<First, Second>,
    std::enable_if_t<has_rows<First>::value && has_rows<Second>::value>> {
  static std::pair<First, Second> take(
      const std::pair<First, Second>& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    return {
        RowsOf<First>::take(batch.first, offset, rows, global),
        RowsOf<Second>::take(batch.second, offset, rows, global)};
  }
};

template <typename... Parts>
struct RowsOf<
    std::tuple<Parts...>,
    std::enable_if_t<(has_rows<Parts>::value && ...)>> {
  static std::tuple<Parts...> take(
      const std::tuple<Parts...>& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    return std::apply(
        [&](const Parts&... parts) {
          return std::tuple<Parts...>(
              RowsOf<Parts>::take(parts, offset, rows, global)...);
        },
        batch);
  }
};

namespace detail {
template <typename Map>
struct RowsOfMap {
  static Map take(
      const Map& batch,
      int64_t offset,
      int64_t rows,
      int64_t global) {
    Map result;
    for (const auto& [key, value] : batch) {
      result.emplace(
          key,
          RowsOf<typename Map::mapped_type>::take(value, offset, rows, global));
    }
    return result;
  }
};
} // namespace detail

template <typename Value>
struct RowsOf<
    std::map<std::string, Value>,
    std::enable_if_t<has_rows<Value>::value>>
    : detail::RowsOfMap<std::map<std::string, Value>> {};

template <typename Value>
struct RowsOf<
    std::unordered_map<std::string, Value>,
    std::enable_if_t<has_rows<Value>::value>>
    : detail::RowsOfMap<std::unordered_map<std::string, Value>> {};

} // namespace accel::data
