#pragma once

#include <accel/export.h>

#include <c10/core/Scalar.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace accel {

/// One value that a tracker takes: a number, a truth value or a text. Converts
/// from all arithmetic types, strings and what `tensor.item()` returns.
class ACCEL_API LogValue {
 public:
  /// What a value can be.
  using Variant = std::variant<bool, int64_t, double, std::string>;

  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  /* implicit */ LogValue(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      value_ = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      value_ = static_cast<double>(value);
    } else {
      value_ = checked(value);
    }
  }
  /* implicit */ LogValue(std::string value) : value_(std::move(value)) {}
  /* implicit */ LogValue(const char* value) : value_(std::string(value)) {}
  /// Throws for complex numbers.
  /* implicit */ LogValue(const c10::Scalar& value);

  /// The value.
  const Variant& value() const {
    return value_;
  }
  /// Whether it is a text.
  bool is_text() const {
    return std::holds_alternative<std::string>(value_);
  }
  /// The number, a truth value as 0 or 1. Throws for a text.
  double number() const;
  /// As a person writes it: a double with as few digits as read back to the
  /// same bits, `true` and `false`, a text as it is.
  std::string str() const;

 private:
  template <typename T>
  static int64_t checked(T value) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) >= sizeof(int64_t)) {
      check_unsigned(value);
    }
    return static_cast<int64_t>(value);
  }
  static void check_unsigned(uint64_t value);

  Variant value_;
};

/// Names and values in the order in which they were given.
///
/// \code
/// accelerator.log({{"train/loss", loss.item()}, {"epoch", epoch}}, step);
/// \endcode
using LogValues = std::vector<std::pair<std::string, LogValue>>;

} // namespace accel
