#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

/// Tensors that are divided between processes, as `save_state` and `load_state` see
/// them.
namespace accel::checkpoint {

/// What this process holds of a tensor: a box of it, or of each of its blocks.
struct TensorPiece {
  /// The place of the box's first element in the whole tensor, for each dimension; in
  /// the first block where there are several.
  std::vector<int64_t> offset;
  /// How many blocks of equal size each dimension has: of every one `values` has the
  /// same rows, one block behind the other (queries, keys and values of attention that
  /// is cut by heads: {3, 1}). Empty: one each.
  std::vector<int64_t> blocks;
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
