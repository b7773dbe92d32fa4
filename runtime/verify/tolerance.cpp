#include "tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace accel::verify {

double Tolerance::at(uint64_t step) const {
  return std::min(most, base * (1 + growth * static_cast<double>(step)));
}

std::string Tolerance::describe() const {
  return short_number(base) + " at step 0, growing by " +
      short_number(base * growth) + " per step to at most " +
      short_number(std::max(base, most));
}

Tolerance tolerance_for(Dtype dtype, const ToleranceOptions& options) {
  Tolerance tolerance{1e-5, 1, 5e-2};
  if (dtype == Dtype::kDouble) {
    tolerance = {1e-9, 1e-3, 1e-6};
  } else if (dtype == Dtype::kHalf || dtype == Dtype::kBFloat16) {
    tolerance = {1e-2, 0.1, 0.3};
  }
  tolerance.base = options.base.value_or(tolerance.base);
  tolerance.growth = options.growth.value_or(tolerance.growth);
  tolerance.most = std::max(tolerance.most, tolerance.base);
  return tolerance;
}

double rounding_of_one(Dtype dtype) {
  switch (dtype) {
    case Dtype::kDouble:
      return 1e-14;
    case Dtype::kFloat:
      return 2e-7;
    default:
      return 0;
  }
}

const char* to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::kDouble:
      return "float64";
    case Dtype::kFloat:
      return "float32";
    case Dtype::kHalf:
      return "float16";
    case Dtype::kBFloat16:
      return "bfloat16";
    case Dtype::kOther:
      return "another dtype";
  }
  return "another dtype";
}

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference
                                   : std::numeric_limits<double>::infinity();
}

double distance(const Fingerprint& a, const Fingerprint& b) {
  return std::max(
      {distance(a.norm, b.norm),
       distance(a.projection[0], b.projection[0]),
       distance(a.projection[1], b.projection[1])});
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g", value);
  return text;
}

} // namespace accel::verify
