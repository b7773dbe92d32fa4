#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

/// Tensors that are divided between processes, as `save_state` and `load_state` see
/// them.
namespace accel::checkpoint {

/// What this process holds of a tensor: a box of it.
struct TensorPiece {
  /// The place of the box's first element in the whole tensor, for each dimension.
  std::vector<int64_t> offset;
  /// A plain tensor; its memory is that of the divided one.
  at::Tensor values;
  /// Of the processes that hold the same box, the one that saves it.
  bool writes = true;
  /// A tensor of the whole one's sizes, divided as this one is, of which this process
  /// holds the values that are given. All processes call it.
  std::function<at::Tensor(at::Tensor values)> like;
};

/// Empty for a tensor that every process holds in full.
using PieceOf = std::function<std::optional<TensorPiece>(const at::Tensor&)>;

/// The whole of a tensor that is divided, as a plain one; of any other, the tensor
/// itself. All processes call it, for the same tensors in the same order.
using PutTogether = std::function<at::Tensor(const at::Tensor&)>;

} // namespace accel::checkpoint
