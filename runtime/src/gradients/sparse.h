#pragma once

#include <accel/detail/communicator.h>

#include "gradients/parameters.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace accel::detail {

/// A parameter of which some process may have a sparse gradient, as those of
/// `nn::Embedding` with `sparse(true)` are.
struct SparseGradient {
  Parameter* parameter = nullptr;
  /// Where it has a place in a bucket: that place, which holds the average of
  /// what the processes with a dense gradient have contributed.
  at::Tensor average;
};

enum class AveragedLayout {
  /// No process has added anything: each keeps the gradient that it has.
  kNone,
  kSparse,
  /// Some process's gradient is dense, or their sparse dimensions differ.
  kMixed,
};

/// Averages the gradients over the processes and attaches the results; tells
/// what has become of each. Every process must call it with the same
/// parameters, whatever gradients it has, or none.
///
/// Of sparse gradients only the rows travel that are there: one message tells
/// how many each process has, a second one carries the rows of all parameters.
/// They are put together in the order of the ranks and coalesced, so that all
/// processes have the same bits.
std::vector<AveragedLayout> average_sparse(
    Communicator& communicator,
    const std::vector<SparseGradient>& gradients);

} // namespace accel::detail
