#pragma once

#include <accel/batch_share.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace accel::detail {

/// The rows of the global batch that this thread works on; nothing where
/// complete batches are worked on: one process, Accelerate's way of sharing,
/// outside of batch loops, in samplers, data sets and their workers.
std::optional<BatchShare> active_share();

/// What is drawn. Equal shapes of different kinds are told apart.
enum class Draw {
  kNormal,
  kUniform,
  kCauchy,
  kLogNormal,
  kExponential,
  kGeometric,
  kRandom,
  kBernoulli,
  kMultinomial,
  kPermutation,
  kFromRows,
};

/// Where a tensor's numbers lie among those that one device draws.
struct RowsOfDraw {
  /// The dimension that counts the samples.
  int64_t dim;
  /// Its size on one device.
  int64_t full;
  /// The global number of the tensor's first row.
  int64_t offset;
};

/// Decides whether a tensor of shape `sizes` that is about to be filled with
/// random numbers holds this process's rows of a tensor of the global batch.
/// Nothing: it does not, and all processes draw the same numbers.
///
/// It does where dimension 0, or else exactly one other dimension, is as large
/// as this process's part of the batch. In `dropout` a multiple in dimension 0
/// counts too (attention heads, time steps folded into the batch).
///
/// All processes must come to the same answer, or their generators part. The
/// shape alone cannot tell a batch of one row on this process from `rand({1})`,
/// so what it was on earlier batches decides: a shape that was seen with other
/// sizes is a fixed one. Where that does not tell either and the parts differ in
/// size, the processes compare their shapes (a collective call on
/// `Channel::kStatistics`).
std::optional<RowsOfDraw> rows_of_draw(Draw draw, at::IntArrayRef sizes);

/// While one lives, `rows_of_draw` takes multiples in this thread.
class DropoutGuard {
 public:
  DropoutGuard();
  ~DropoutGuard();
  DropoutGuard(const DropoutGuard&) = delete;
  DropoutGuard& operator=(const DropoutGuard&) = delete;
};

} // namespace accel::detail
