#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace_format.h"

namespace accel::verify {

/// How far two runs may be apart and still count as equal.
///
/// Two runs that split the same sums in different ways differ by rounding from
/// the first step on, and each step starts from what the last one left: the
/// allowed difference grows with the steps. At step s (from 0) it is
/// base x (1 + growth x s), but never more than `most`; relative to the size of
/// what is compared.
struct Tolerance {
  double base;
  double growth;
  double most;

  double at(uint64_t step) const;
  /// "1e-05 at step 0, growing by 1e-05 per step to at most 0.05".
  std::string describe() const;
};

/// What the user may set in place of the defaults.
struct ToleranceOptions {
  std::optional<double> base;
  std::optional<double> growth;
};

/// The tolerance for what was computed in `dtype`.
Tolerance tolerance_for(Dtype dtype, const ToleranceOptions& options = {});

/// What may be left where numbers of the size of one cancel each other: a printed
/// difference of two that are equal.
double rounding_of_one(Dtype dtype);

const char* to_string(Dtype dtype);

/// Tensors also differ where their own size says little: gradients that are
/// zero but for rounding. What is this part of the size of all of them
/// together is allowed as well, times the tolerance.
constexpr double kFloor = 0.1;

/// An estimate of |a - b| from fingerprints: 0 where both are NaN in the same
/// places, infinite where only one is.
double distance(const Fingerprint& a, const Fingerprint& b);
double distance(double a, double b);

/// "3.1e-07".
std::string short_number(double value);

} // namespace accel::verify
