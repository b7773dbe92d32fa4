#pragma once

#include "random_program_machine.h"

// What instructions make their arguments of.

namespace accel::distributed::test {

/// A dimension of `x`, which has at least one.
int64_t dim_of(const at::Tensor& x, uint64_t n);

/// Distinct numbers, so that equal values do not change places by rounding. Each
/// operator has a step of its own: what one has sorted backwards, another one must
/// not make equal again.
at::Tensor apart(const at::Tensor& x, double step = 0.013717);

/// A matrix of parameters with `rows` rows and 1 to 4 columns.
at::Tensor weight_of(Machine& machine, int64_t rows, uint64_t which);

} // namespace accel::distributed::test
