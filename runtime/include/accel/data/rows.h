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
///
/// Where process 0 reads for all (`AcceleratorOptions::dispatch_batches`),
/// batches are also counted and put together: a specialisation then has two
/// more functions (`joinable` may be left out where all batches are).
///
///     static int64_t count(const MyBatch& batch);
///     static bool joinable(const MyBatch& a, const MyBatch& b);
///     static MyBatch join(const std::vector<MyBatch>& batches);
template <typename Batch, typename = void>
struct RowsOf;

/// Whether there is a `RowsOf` for `Batch`.
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

/// Whether batches can be counted, cut and put together.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch, typename = void>
struct has_joinable_rows : std::false_type {};
template <typename Batch>
struct has_joinable_rows<
    Batch,
    std::void_t<
        decltype(RowsOf<Batch>::count(std::declval<const Batch&>())),
        decltype(RowsOf<Batch>::join(
            std::declval<const std::vector<Batch>&>()))>> : has_rows<Batch> {};

namespace detail {
/// For what is made of parts: where all of them can be put together.
template <typename... Parts>
struct all_joinable_rows : std::conjunction<has_joinable_rows<Parts>...> {};
template <typename... Parts>
using if_joinable_rows =
    std::enable_if_t<all_joinable_rows<Parts...>::value, int>;

/// `get(batch)` of each batch.
template <typename Part, typename Batch, typename Get>
std::vector<Part> parts_of(const std::vector<Batch>& batches, const Get& get) {
  std::vector<Part> parts;
  parts.reserve(batches.size());
  for (const auto& batch : batches) {
    parts.push_back(get(batch));
  }
  return parts;
}

template <typename Batch, typename = void>
struct has_joinable : std::false_type {};
template <typename Batch>
struct has_joinable<
    Batch,
    std::void_t<decltype(RowsOf<Batch>::joinable(
        std::declval<const Batch&>(),
        std::declval<const Batch&>()))>> : std::true_type {};
} // namespace detail

/// Whether two batches can be put together: not where, say, texts were padded
/// to another length in each of them.
///
/// For the library itself: a program has no need to name it, and it may change.
template <typename Batch>
bool rows_joinable(const Batch& a, const Batch& b) {
  if constexpr (detail::has_joinable<Batch>::value) {
    return RowsOf<Batch>::joinable(a, b);
  } else {
    return true;
  }
}

template <>
struct RowsOf<torch::Tensor> {
  static int64_t count(const torch::Tensor& batch) {
    TORCH_CHECK(
        batch.dim() > 0,
        "A batch whose first dimension counts the samples was expected, but "
        "the data set returned a tensor without dimensions.");
    return batch.size(0);
  }
  static bool joinable(const torch::Tensor& a, const torch::Tensor& b) {
    return a.scalar_type() == b.scalar_type() && a.dim() == b.dim() &&
        a.dim() > 0 && a.sizes().slice(1) == b.sizes().slice(1);
  }
  static torch::Tensor join(const std::vector<torch::Tensor>& batches) {
    return torch::cat(batches);
  }
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
        "with torch::data::make_data_loader and cut with "
        "accelerator.distribute.");
    return batch.narrow(0, offset, rows);
  }
};

template <typename Element>
struct RowsOf<std::vector<Element>> {
  static int64_t count(const std::vector<Element>& batch) {
    return static_cast<int64_t>(batch.size());
  }
  static std::vector<Element> join(
      const std::vector<std::vector<Element>>& batches) {
    std::vector<Element> all;
    for (const auto& batch : batches) {
      all.insert(all.end(), batch.begin(), batch.end());
    }
    return all;
  }
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
        "torch::data::make_data_loader and cut with "
        "accelerator.distribute.");
    return {batch.begin() + offset, batch.begin() + offset + rows};
  }
};

template <typename Data, typename Target>
struct RowsOf<
    torch::data::Example<Data, Target>,
    std::enable_if_t<has_rows<Data>::value && has_rows<Target>::value>> {
  using Example = torch::data::Example<Data, Target>;

  template <typename D = Data, detail::if_joinable_rows<D> = 0>
  static int64_t count(const Example& batch) {
    return RowsOf<Data>::count(batch.data);
  }
  static bool joinable(const Example& a, const Example& b) {
    return rows_joinable(a.data, b.data) && rows_joinable(a.target, b.target);
  }
  template <typename D = Data, detail::if_joinable_rows<D, Target> = 0>
  static Example join(const std::vector<Example>& batches) {
    return {
        RowsOf<Data>::join(detail::parts_of<Data>(
            batches, [](const Example& batch) { return batch.data; })),
        RowsOf<Target>::join(detail::parts_of<Target>(
            batches, [](const Example& batch) { return batch.target; }))};
  }
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

  template <typename D = Data, detail::if_joinable_rows<D> = 0>
  static int64_t count(const Example& batch) {
    return RowsOf<Data>::count(batch.data);
  }
  static bool joinable(const Example& a, const Example& b) {
    return rows_joinable(a.data, b.data);
  }
  template <typename D = Data, detail::if_joinable_rows<D> = 0>
  static Example join(const std::vector<Example>& batches) {
    return Example(RowsOf<Data>::join(detail::parts_of<Data>(
        batches, [](const Example& batch) { return batch.data; })));
  }
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
  using Pair = std::pair<First, Second>;

  template <typename F = First, detail::if_joinable_rows<F> = 0>
  static int64_t count(const Pair& batch) {
    return RowsOf<First>::count(batch.first);
  }
  static bool joinable(const Pair& a, const Pair& b) {
    return rows_joinable(a.first, b.first) &&
        rows_joinable(a.second, b.second);
  }
  template <typename F = First, detail::if_joinable_rows<F, Second> = 0>
  static Pair join(const std::vector<Pair>& batches) {
    return {
        RowsOf<First>::join(detail::parts_of<First>(
            batches, [](const Pair& batch) { return batch.first; })),
        RowsOf<Second>::join(detail::parts_of<Second>(
            batches, [](const Pair& batch) { return batch.second; }))};
  }
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
  using Tuple = std::tuple<Parts...>;
  using First = std::tuple_element_t<0, Tuple>;

  template <typename F = First, detail::if_joinable_rows<F> = 0>
  static int64_t count(const Tuple& batch) {
    return RowsOf<First>::count(std::get<0>(batch));
  }
  static bool joinable(const Tuple& a, const Tuple& b) {
    return parts_joinable(a, b, std::index_sequence_for<Parts...>());
  }
  template <typename F = First, detail::if_joinable_rows<F, Parts...> = 0>
  static Tuple join(const std::vector<Tuple>& batches) {
    return join_parts(batches, std::index_sequence_for<Parts...>());
  }
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

 private:
  template <size_t... I>
  static bool parts_joinable(
      const Tuple& a,
      const Tuple& b,
      std::index_sequence<I...>) {
    return (rows_joinable(std::get<I>(a), std::get<I>(b)) && ...);
  }
  template <size_t... I>
  static Tuple join_parts(
      const std::vector<Tuple>& batches,
      std::index_sequence<I...>) {
    return Tuple(RowsOf<Parts>::join(detail::parts_of<Parts>(
        batches, [](const Tuple& batch) { return std::get<I>(batch); }))...);
  }
};

namespace detail {
template <typename Map>
struct RowsOfMap {
  using Value = typename Map::mapped_type;

  template <typename V = Value, if_joinable_rows<V> = 0>
  static int64_t count(const Map& batch) {
    TORCH_CHECK(!batch.empty(), "The data set returned an empty map.");
    return RowsOf<Value>::count(batch.begin()->second);
  }
  static bool joinable(const Map& a, const Map& b) {
    for (const auto& [key, value] : a) {
      const auto other = b.find(key);
      if (other == b.end() || !rows_joinable(value, other->second)) {
        return false;
      }
    }
    return a.size() == b.size();
  }
  template <typename V = Value, if_joinable_rows<V> = 0>
  static Map join(const std::vector<Map>& batches) {
    Map result;
    for (const auto& item : batches.front()) {
      const auto& key = item.first;
      result.emplace(
          key,
          RowsOf<Value>::join(parts_of<Value>(
              batches, [&](const Map& batch) { return batch.at(key); })));
    }
    return result;
  }
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
