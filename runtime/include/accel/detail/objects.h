#pragma once

#include <accel/export.h>

#include <c10/util/Type.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Objects that are no tensors, as bytes that travel.

namespace accel::detail {

/// Overwrites `bytes` with process `from_process`'s, of which there must be as
/// many, and which must be of the same `type`. Collective; throws `c10::Error` on all
/// processes where they are not.
ACCEL_API void broadcast_bytes(
    void* bytes,
    size_t size,
    int64_t from_process,
    const std::string& type);

/// All processes' bytes, any number from each, in rank order. Collective; throws
/// `c10::Error` on all processes where they are not of the same `type`.
ACCEL_API std::vector<std::string> exchange_bytes(
    const std::string& bytes,
    const std::string& type);

/// A `std::string`, or a vector whose elements lie behind each other.
template <typename T>
inline constexpr bool is_list_v = std::is_same_v<T, std::string>;
template <typename E>
inline constexpr bool is_list_v<std::vector<E>> =
    std::is_trivially_copyable_v<E> && !std::is_pointer_v<E> &&
    !std::is_same_v<E, bool>;

/// `Accelerator::broadcast_object`.
template <typename T>
T broadcast_object(T value, int64_t from_process) {
  const std::string type = c10::demangle_type<T>();
  if constexpr (is_list_v<T>) {
    uint64_t size = value.size();
    broadcast_bytes(&size, sizeof(size), from_process, type);
    value.resize(size);
    broadcast_bytes(
        value.data(),
        size * sizeof(typename T::value_type),
        from_process,
        type);
  } else {
    static_assert(
        std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>,
        "accel: broadcast_object takes numbers, enumerations, structs of plain "
        "numbers, vectors of those (no bool) and std::string");
    broadcast_bytes(&value, sizeof(value), from_process, type);
  }
  return value;
}

/// `Accelerator::gather_object`. Strings travel behind their length.
template <typename T>
std::vector<T> gather_object(const std::vector<T>& objects) {
  static_assert(
      std::is_same_v<T, std::string> ||
          (std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
           !std::is_same_v<T, bool>),
      "accel: gather_object takes vectors of numbers (no bool), enumerations, "
      "structs of plain numbers and std::string");
  std::string bytes;
  for (const auto& object : objects) {
    if constexpr (std::is_same_v<T, std::string>) {
      const uint64_t size = object.size();
      bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
      bytes += object;
    } else {
      bytes.append(reinterpret_cast<const char*>(&object), sizeof object);
    }
  }
  std::vector<T> result;
  for (const auto& part : exchange_bytes(bytes, c10::demangle_type<T>())) {
    for (size_t position = 0; position < part.size();) {
      if constexpr (std::is_same_v<T, std::string>) {
        uint64_t size = 0;
        part.copy(reinterpret_cast<char*>(&size), sizeof size, position);
        position += sizeof size;
        result.push_back(part.substr(position, size));
        position += size;
      } else {
        T object;
        part.copy(reinterpret_cast<char*>(&object), sizeof object, position);
        result.push_back(object);
        position += sizeof object;
      }
    }
  }
  return result;
}

/// Several tensors, as structured bindings and `std::tie` take them.
template <size_t... I>
auto as_tuple(
    const std::vector<torch::Tensor>& tensors,
    std::index_sequence<I...> /*indices*/) {
  return std::make_tuple(tensors[I]...);
}
template <size_t N>
auto as_tuple(const std::vector<torch::Tensor>& tensors) {
  return as_tuple(tensors, std::make_index_sequence<N>());
}

} // namespace accel::detail
