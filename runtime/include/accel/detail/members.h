#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

// The members of a struct, without its author's help: how many there are is the
// greatest number of values in braces that it can be made of, and structured
// bindings name them. For aggregates (a struct without constructors, private members
// or virtual functions) without a base class, of at most 16 members of which each
// can be made by `{}` and none is an array as in C. Others have no members here,
// which costs no more than that.
//
// For the library itself: a program has no need to name it, and it may change.
namespace accel::detail {

constexpr size_t most_members = 16;

/// Converts to the type of a member, whatever that is; not to `T` itself, which
/// would copy it, nor to a base class.
template <typename T>
struct MemberOf {
  template <
      typename Member,
      std::enable_if_t<!std::is_base_of_v<Member, T>, int> = 0>
  operator Member() const; // Not defined: for `decltype` only.
};

/// Converts to a base class of `T` only.
template <typename T>
struct BaseOf {
  template <
      typename Base,
      std::enable_if_t<
          std::is_base_of_v<Base, T> && !std::is_same_v<Base, T>,
          int> = 0>
  operator Base() const;
};

template <typename T, size_t>
using member_of = MemberOf<T>;

/// Whether `T{m, m, …}` with these many values compiles.
template <typename T, typename Indices, typename = void>
struct is_made_of : std::false_type {};
template <typename T, size_t... I>
struct is_made_of<
    T,
    std::index_sequence<I...>,
    std::void_t<decltype(T{std::declval<member_of<T, I>>()...})>>
    : std::true_type {};

/// The same with `{}` in the place of the one that `Before` values stand before: it
/// takes an array as a whole, of which values without braces fill an element each.
template <typename T, typename Before, typename Behind, typename = void>
struct is_one_member : std::false_type {};
template <typename T, size_t... Before, size_t... Behind>
struct is_one_member<
    T,
    std::index_sequence<Before...>,
    std::index_sequence<Behind...>,
    std::void_t<decltype(T{
        std::declval<member_of<T, Before>>()...,
        {},
        std::declval<member_of<T, Behind>>()...})>> : std::true_type {};

template <typename T, typename = void>
struct has_base : std::false_type {};
template <typename T>
struct has_base<T, std::void_t<decltype(T{std::declval<BaseOf<T>>()})>>
    : std::true_type {};

template <typename T, size_t N = most_members + 1>
constexpr size_t values_of() {
  if constexpr (N == 0 || is_made_of<T, std::make_index_sequence<N>>::value) {
    return N;
  } else {
    return values_of<T, N - 1>();
  }
}

template <typename T, size_t N, size_t... I>
constexpr bool are_members(std::index_sequence<I...>) {
  return (
      is_one_member<
          T,
          std::make_index_sequence<I>,
          std::make_index_sequence<N - I - 1>>::value &&
      ...);
}

template <typename T, typename = void>
struct is_like_tuple : std::false_type {};
template <typename T>
struct is_like_tuple<T, std::void_t<decltype(std::tuple_size<T>::value)>>
    : std::true_type {};

/// How many members `T` has; 0 where that is not known.
template <typename T>
constexpr size_t count_members() {
  if constexpr (
      std::is_class_v<T> && std::is_aggregate_v<T> && !is_like_tuple<T>::value) {
    if constexpr (!has_base<T>::value) {
      constexpr size_t N = values_of<T>();
      if constexpr (N > 0 && N <= most_members) {
        return are_members<T, N>(std::make_index_sequence<N>()) ? N : 0;
      }
    }
  }
  return 0;
}

/// References to the members of `value`, in order: a `std::tuple`; an empty one
/// where they are not known.
template <typename T>
auto members_of(T& value) {
  constexpr size_t N = count_members<std::remove_const_t<T>>();
  if constexpr (N == 0) {
    return std::tuple<>();
  } else if constexpr (N == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (N == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (N == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (N == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (N == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (N == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (N == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (N == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (N == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (N == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (N == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (N == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (N == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (N == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (N == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (N == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
}

} // namespace accel::detail
