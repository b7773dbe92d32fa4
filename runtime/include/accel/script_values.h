#pragma once

#include <accel/export.h>
#include <accel/operations.h>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <functional>

// The tensors in TorchScript's values, which `torch::pickle_save` takes and modules of
// TorchScript are given: what lets `full`, `gather` and the other operations take them.

namespace accel {

namespace detail {
/// `value` with `f(tensor)` in place of each tensor, in lists, dictionaries and tuples, too,
/// in their order; objects of TorchScript's classes stay as they are.
ACCEL_API c10::IValue map_script_tensors(
    const c10::IValue& value,
    const std::function<torch::Tensor(const torch::Tensor&)>& f);
} // namespace detail

template <>
struct TensorsOf<c10::IValue> {
  template <typename F>
  static c10::IValue map(const c10::IValue& value, F&& f) {
    return detail::map_script_tensors(value, f);
  }
};

template <>
struct TensorsOf<c10::impl::GenericDict> {
  template <typename F>
  static c10::impl::GenericDict map(const c10::impl::GenericDict& value, F&& f) {
    return detail::map_script_tensors(value, f).toGenericDict();
  }
};

template <>
struct TensorsOf<c10::impl::GenericList> {
  template <typename F>
  static c10::impl::GenericList map(const c10::impl::GenericList& value, F&& f) {
    return detail::map_script_tensors(value, f).toList();
  }
};

template <typename Key, typename Value>
struct TensorsOf<
    c10::Dict<Key, Value>,
    std::enable_if_t<has_tensors<Value>::value>> {
  template <typename F>
  static c10::Dict<Key, Value> map(const c10::Dict<Key, Value>& value, F&& f) {
    c10::Dict<Key, Value> result;
    for (const auto& item : value) {
      result.insert(item.key(), map_tensors(item.value(), f));
    }
    return result;
  }
};

template <typename T>
struct TensorsOf<c10::List<T>, std::enable_if_t<has_tensors<T>::value>> {
  template <typename F>
  static c10::List<T> map(const c10::List<T>& value, F&& f) {
    c10::List<T> result;
    for (size_t i = 0; i < value.size(); ++i) {
      result.push_back(map_tensors(T(value.get(i)), f));
    }
    return result;
  }
};

} // namespace accel
