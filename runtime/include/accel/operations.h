#pragma once

#include <accel/detail/members.h>

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
#include <variant>
#include <vector>

namespace accel {

/// How the tensors in a value are replaced: what lets the operations of
/// `Accelerator` (`gather`, `reduce`, `send_to_device` …) take more than
/// tensors. Known are tensors, and vectors, arrays, pairs, tuples, optionals,
/// variants, maps by `std::string` and `torch::data::Example`s of what is known, TorchScript's
/// values (accel/script_values.h), and structs that have such among their members:
///
///     struct MyBatch {
///       torch::Tensor image, label;
///       std::vector<std::string> names;
///     };
///
/// That is a struct without constructors, private members, virtual functions and base
/// classes, of at most 16 members that can be made by `{}`, none of them an array as
/// in C or a reference. For another class specialise it:
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

template <typename... Alternatives>
struct TensorsOf<
    std::variant<Alternatives...>,
    std::enable_if_t<(has_tensors<Alternatives>::value && ...)>> {
  using Variant = std::variant<Alternatives...>;
  template <typename F>
  static Variant map(const Variant& value, F&& f) {
    return std::visit(
        [&](const auto& held) { return Variant(map_tensors(held, f)); }, value);
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

namespace detail {
/// Whether `Member` is `T` or a container of such.
template <typename T, typename Member>
struct is_made_with : std::is_same<T, Member> {};
template <typename T, template <typename...> typename Container, typename... Of>
struct is_made_with<T, Container<Of...>>
    : std::disjunction<
          std::is_same<T, Container<Of...>>,
          is_made_with<T, std::remove_const_t<Of>>...> {};

/// Whether there are tensors among the members, and all of them can be replaced.
/// Not in a node of a tree, whose children are not known to have any while that is
/// asked.
template <typename T, typename Members>
struct are_tensors_among : std::false_type {};
template <typename T, typename... Member>
struct are_tensors_among<T, std::tuple<Member&...>> {
  template <typename M>
  static constexpr bool can_be_replaced() {
    return !std::is_const_v<M> || !has_tensors<std::remove_const_t<M>>::value;
  }
  static constexpr bool value = [] {
    if constexpr ((is_made_with<T, std::remove_const_t<Member>>::value || ...)) {
      return false;
    } else {
      return (has_tensors<std::remove_const_t<Member>>::value || ...) &&
          (can_be_replaced<Member>() && ...);
    }
  }();
};

template <typename T>
constexpr bool is_struct_of_tensors() {
  if constexpr (std::is_copy_constructible_v<T> && count_members<T>() > 0) {
    return are_tensors_among<
        T,
        decltype(members_of(std::declval<T&>()))>::value;
  } else {
    return false;
  }
}
} // namespace detail

template <typename T>
struct TensorsOf<T, std::enable_if_t<detail::is_struct_of_tensors<T>()>> {
  template <typename F>
  static T map(const T& value, F&& f) {
    T result = value;
    const auto replace = [&](auto& member) {
      if constexpr (has_tensors<std::decay_t<decltype(member)>>::value) {
        member = map_tensors(member, f);
      }
    };
    std::apply(
        [&](auto&... member) { (replace(member), ...); },
        detail::members_of(result));
    return result;
  }
};

/// Values other than tensors that the operations take.
template <typename T>
using if_holds_tensors = std::enable_if_t<
    has_tensors<T>::value && !std::is_same_v<T, torch::Tensor>,
    int>;

} // namespace accel
