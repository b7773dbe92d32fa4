#pragma once

#include <torch/data/example.h>
#include <torch/types.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace accel {

/// How the tensors in a value are replaced: what lets the operations of
/// `Accelerator` (`gather`, `reduce`, `send_to_device` …) take more than
/// tensors. Known are tensors, and vectors, arrays, pairs, tuples, optionals,
/// maps by `std::string` and `torch::data::Example`s of what is known. For a
/// struct of your own specialise it:
///
///     template <>
///     struct accel::TensorsOf<MyBatch> {
///       template <typename F>
///       static MyBatch map(const MyBatch& batch, F&& f) {
///         return {f(batch.image), f(batch.label)};
///       }
///     };
///
/// `map` must call `f` on the same tensors in the same order on all processes.
template <typename T, typename = void>
struct TensorsOf;

/// Whether there is a `TensorsOf` for `T`.
template <typename T, typename = void>
struct has_tensors : std::false_type {};
template <typename T>
struct has_tensors<
    T,
    std::void_t<decltype(TensorsOf<T>::map(
        std::declval<const T&>(),
        std::declval<torch::Tensor (*)(const torch::Tensor&)>()))>>
    : std::true_type {};

/// `value` with `f(tensor)` in place of each of its tensors.
template <typename T, typename F>
T map_tensors(const T& value, F&& f) {
  return TensorsOf<T>::map(value, f);
}

template <>
struct TensorsOf<torch::Tensor> {
  template <typename F>
  static torch::Tensor map(const torch::Tensor& value, F&& f) {
    return f(value);
  }
};

template <typename T>
struct TensorsOf<std::vector<T>, std::enable_if_t<has_tensors<T>::value>> {
  template <typename F>
  static std::vector<T> map(const std::vector<T>& value, F&& f) {
    std::vector<T> result;
    result.reserve(value.size());
    for (const auto& element : value) {
      result.push_back(map_tensors(element, f));
    }
    return result;
  }
};

template <typename T, size_t N>
struct TensorsOf<std::array<T, N>, std::enable_if_t<has_tensors<T>::value>> {
  template <typename F>
  static std::array<T, N> map(const std::array<T, N>& value, F&& f) {
    std::array<T, N> result;
    for (size_t i = 0; i < N; ++i) {
      result[i] = map_tensors(value[i], f);
    }
    return result;
  }
};

template <typename T>
struct TensorsOf<std::optional<T>, std::enable_if_t<has_tensors<T>::value>> {
  template <typename F>
  static std::optional<T> map(const std::optional<T>& value, F&& f) {
    return value ? std::optional<T>(map_tensors(*value, f)) : std::nullopt;
  }
};

template <typename A, typename B>
struct TensorsOf<
    std::pair<A, B>,
    std::enable_if_t<has_tensors<A>::value && has_tensors<B>::value>> {
  template <typename F>
  static std::pair<A, B> map(const std::pair<A, B>& value, F&& f) {
    // One after the other: the order of a call's arguments is not fixed.
    A first = map_tensors(value.first, f);
    B second = map_tensors(value.second, f);
    return {std::move(first), std::move(second)};
  }
};

template <typename... Parts>
struct TensorsOf<
    std::tuple<Parts...>,
    std::enable_if_t<(has_tensors<Parts>::value && ...)>> {
  template <typename F>
  static std::tuple<Parts...> map(const std::tuple<Parts...>& value, F&& f) {
    return std::apply(
        [&](const Parts&... parts) {
          // Braces evaluate from left to right.
          return std::tuple<Parts...>{map_tensors(parts, f)...};
        },
        value);
  }
};

namespace detail {
template <typename Map>
struct TensorsOfMap {
  template <typename F>
  static Map map(const Map& value, F&& f) {
    // In the order of the keys, which processes share; that of a hash table
    // they need not.
    std::map<std::string, const typename Map::mapped_type*> ordered;
    for (const auto& [key, element] : value) {
      ordered.emplace(key, &element);
    }
    Map result;
    for (const auto& [key, element] : ordered) {
      result.emplace(key, map_tensors(*element, f));
    }
    return result;
  }
};
} // namespace detail

template <typename T>
struct TensorsOf<
    std::map<std::string, T>,
    std::enable_if_t<has_tensors<T>::value>>
    : detail::TensorsOfMap<std::map<std::string, T>> {};

template <typename T>
struct TensorsOf<
    std::unordered_map<std::string, T>,
    std::enable_if_t<has_tensors<T>::value>>
    : detail::TensorsOfMap<std::unordered_map<std::string, T>> {};

template <typename Data, typename Target>
struct TensorsOf<
    torch::data::Example<Data, Target>,
    std::enable_if_t<has_tensors<Data>::value && has_tensors<Target>::value>> {
  using Example = torch::data::Example<Data, Target>;
  template <typename F>
  static Example map(const Example& value, F&& f) {
    Data data = map_tensors(value.data, f);
    Target target = map_tensors(value.target, f);
    return {std::move(data), std::move(target)};
  }
};

template <typename Data>
struct TensorsOf<
    torch::data::Example<Data, torch::data::example::NoTarget>,
    std::enable_if_t<has_tensors<Data>::value>> {
  using Example = torch::data::Example<Data, torch::data::example::NoTarget>;
  template <typename F>
  static Example map(const Example& value, F&& f) {
    return Example(map_tensors(value.data, f));
  }
};

/// Values other than tensors that the operations take.
template <typename T>
using if_holds_tensors = std::enable_if_t<
    has_tensors<T>::value && !std::is_same_v<T, torch::Tensor>,
    int>;

} // namespace accel
