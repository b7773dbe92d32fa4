#include <accel/tracking/log_value.h>

#include <c10/util/Exception.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace accel {

LogValue::LogValue(const c10::Scalar& value) {
  TORCH_CHECK(
      !value.isComplex(),
      "Complex numbers cannot be logged; log the real and the imaginary part.");
  if (value.isBoolean()) {
    value_ = value.toBool();
  } else if (value.isIntegral(/*includeBool=*/false)) {
    value_ = value.toLong();
  } else {
    value_ = value.toDouble();
  }
}

void LogValue::check_unsigned(uint64_t value) {
  TORCH_CHECK(
      value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
      "The value ",
      value,
      " does not fit a signed 64-bit integer; log it as a double or a text.");
}

double LogValue::number() const {
  if (const auto* flag = std::get_if<bool>(&value_)) {
    return *flag ? 1.0 : 0.0;
  }
  if (const auto* integer = std::get_if<int64_t>(&value_)) {
    return static_cast<double>(*integer);
  }
  const auto* real = std::get_if<double>(&value_);
  TORCH_CHECK(real, "'", std::get<std::string>(value_), "' is not a number.");
  return *real;
}

std::string LogValue::str() const {
  if (const auto* flag = std::get_if<bool>(&value_)) {
    return *flag ? "true" : "false";
  }
  if (const auto* integer = std::get_if<int64_t>(&value_)) {
    return std::to_string(*integer);
  }
  if (const auto* text = std::get_if<std::string>(&value_)) {
    return *text;
  }
  const double real = std::get<double>(value_);
  if (std::isnan(real)) {
    return "nan";
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, real).ptr;
  return {digits, end};
}

} // namespace accel
