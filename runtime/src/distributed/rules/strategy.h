#pragma once

#include "distributed/rules/table.h"

#include <ATen/core/Tensor.h>

namespace accel::distributed {

/// The role of a tensor in a way to do an operator in parts: the number of the
/// dimension that is cut, or one of these.
constexpr int8_t kWhole = -1;
constexpr int8_t kSum = -2;

/// One way to do an operator in parts. All dimensions that are cut have the
/// same size and are cut at the same points.
struct Strategy {
  /// Of every argument that may be a tensor, in the schema's order. An argument
  /// that is a list has to be `kWhole`.
  c10::SmallVector<int8_t, 8> arguments;
  /// Of the results, in the schema's order; those that are no tensors and those
  /// of fewer dimensions than the role says are left as they are.
  c10::SmallVector<int8_t, 4> results;
  /// A result whose memory is not in the order of its dimensions, -1 for none, and
  /// its innermost dimension. Parts with a single row do not show it.
  int8_t transposed = -1;
  int8_t innermost = -1;
};

/// A way that one of the arguments asks for by its placement.
struct Chosen {
  const Strategy* strategy = nullptr;
  /// Where the dimensions are cut; of a way that cuts.
  Cut cut;
  /// Their size.
  int64_t n = 0;

  explicit operator bool() const {
    return strategy != nullptr;
  }
};

/// The way that moves the fewest elements, of those that an argument asks for:
/// it is cut in the dimension, or a part of a sum where the way takes one.
/// Nothing where there is none. Changes nothing.
Chosen choose(const Call& call, c10::ArrayRef<Strategy> ways);

/// Brings the arguments to their places, runs the operator and places the
/// results. Arguments that are no tensors and depend on the sizes are set
/// before.
void run_strategy(Call& call, const Chosen& chosen);

/// Both: false where no way was asked for, and for `out=`.
bool in_parts(Call& call, c10::ArrayRef<Strategy> ways);

} // namespace accel::distributed
