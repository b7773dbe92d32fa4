#pragma once

#include <accel/export.h>

#include <c10/util/Exception.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

namespace accel::checkpoint {

/// Something of the program's own that goes into a checkpoint, as bytes.
struct CustomObject {
  /// Returns the bytes to save.
  std::function<std::string()> save;
  /// Throws for bytes that are not such an object's.
  std::function<void(const std::string&)> load;
  /// What it is, in words. A checkpoint keeps it: the bytes of one kind can often be
  /// read as another. Empty: not compared.
  std::string kind;
};

namespace detail {

template <typename T, typename = void>
struct has_archives : std::false_type {};
template <typename T>
struct has_archives<
    T,
    std::void_t<
        decltype(std::declval<const T&>().save(
            std::declval<torch::serialize::OutputArchive&>())),
        decltype(std::declval<T&>().load(
            std::declval<torch::serialize::InputArchive&>()))>>
    : std::true_type {};

template <typename T, typename = void>
struct has_text_state : std::false_type {};
template <typename T>
struct has_text_state<
    T,
    std::enable_if_t<
        std::is_convertible_v<
            decltype(std::declval<const T&>().state_dict()),
            std::string> &&
        std::is_void_v<decltype(std::declval<T&>().load_state_dict(
            std::declval<const std::string&>()))>>> : std::true_type {};

ACCEL_API std::string archive_bytes(
    const std::function<void(torch::serialize::OutputArchive&)>& save);
ACCEL_API void read_archive(
    const std::string& bytes,
    const std::function<void(torch::serialize::InputArchive&)>& load);

/// Texts that reading turns into the same bits.
ACCEL_API std::string integer_text(int64_t value);
ACCEL_API std::string unsigned_text(uint64_t value);
ACCEL_API std::string real_text(double value);
ACCEL_API int64_t read_integer(const std::string& text);
ACCEL_API uint64_t read_unsigned(const std::string& text);
ACCEL_API double read_real(const std::string& text);

template <typename T>
void load_number(T& number, const std::string& text) {
  const auto fits = [&](auto value) {
    const T converted = static_cast<T>(value);
    TORCH_CHECK(
        static_cast<decltype(value)>(converted) == value ||
            (converted != converted && value != value),
        "accel: the checkpoint has the number ",
        text,
        " for a variable whose type cannot hold it.");
    number = converted;
  };
  if constexpr (std::is_floating_point_v<T>) {
    fits(read_real(text));
  } else if constexpr (std::is_unsigned_v<T>) {
    fits(read_unsigned(text));
  } else {
    fits(read_integer(text));
  }
}

template <typename T>
std::string number_text(T number) {
  if constexpr (std::is_floating_point_v<T>) {
    return real_text(number);
  } else if constexpr (std::is_unsigned_v<T>) {
    return unsigned_text(number);
  } else {
    return integer_text(number);
  }
}

} // namespace detail

/// How `object` is saved. It can be
///
/// - a number or a `std::string`: epochs, counters, best losses;
/// - a tensor, which keeps its place, shape and dtype when it is loaded;
/// - what has `save(torch::serialize::OutputArchive&) const` and
///   `load(torch::serialize::InputArchive&)`: modules and their holders,
///   samplers, the schedulers of `accel::optim`, classes of your own;
/// - what has `std::string state_dict() const` and
///   `void load_state_dict(const std::string&)`.
///
/// The object must live as long as it can be saved.
template <typename T>
CustomObject custom_object(T& object) {
  static_assert(
      !std::is_const_v<T>,
      "accel: what is registered for checkpointing is changed when a "
      "checkpoint is loaded, so it must not be const.");
  if constexpr (
      std::is_arithmetic_v<T> && !std::is_same_v<T, long double>) {
    return {
        [&object] { return detail::number_text(object); },
        [&object](const std::string& text) {
          detail::load_number(object, text);
        },
        std::is_floating_point_v<T> ? "a floating-point number"
                                    : "a whole number"};
  } else if constexpr (std::is_same_v<T, std::string>) {
    return {
        [&object] { return object; },
        [&object](const std::string& text) { object = text; },
        "a std::string"};
  } else if constexpr (std::is_same_v<T, torch::Tensor>) {
    return {
        [&object] {
          return detail::archive_bytes([&](auto& archive) {
            archive.write("tensor", object.detach());
          });
        },
        [&object](const std::string& bytes) {
          detail::read_archive(bytes, [&](auto& archive) {
            torch::Tensor saved;
            archive.read("tensor", saved);
            TORCH_CHECK(
                object.defined() && saved.sizes() == object.sizes() &&
                    saved.scalar_type() == object.scalar_type(),
                "accel: a registered tensor was ",
                saved.scalar_type(),
                " ",
                saved.sizes(),
                " when the checkpoint was saved, and is ",
                object.defined() ? c10::str(object.scalar_type()) : "undefined",
                " ",
                object.sizes(),
                " now.");
            const torch::NoGradGuard no_grad;
            object.copy_(saved);
          });
        },
        "a tensor"};
  } else if constexpr (torch::detail::is_module_holder<T>::value) {
    return custom_object(*object);
  } else if constexpr (detail::has_archives<T>::value) {
    return {
        [&object] {
          return detail::archive_bytes(
              [&](auto& archive) { std::as_const(object).save(archive); });
        },
        [&object](const std::string& bytes) {
          detail::read_archive(
              bytes, [&](auto& archive) { object.load(archive); });
        },
        "an object with save and load"};
  } else {
    static_assert(
        detail::has_text_state<T>::value,
        "accel: register_for_checkpointing takes numbers, std::string, "
        "tensors, what has save(torch::serialize::OutputArchive&) const and "
        "load(torch::serialize::InputArchive&), and what has std::string "
        "state_dict() const and void load_state_dict(const std::string&).");
    return {
        [&object] { return std::string(std::as_const(object).state_dict()); },
        [&object](const std::string& text) { object.load_state_dict(text); },
        "an object with state_dict and load_state_dict"};
  }
}

} // namespace accel::checkpoint
