#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

/// Parts of tensors that are cut in blocks: of each dimension's `blocks`, which are of
/// equal size, a part has the same rows, one block behind the other. Where `blocks` is 1
/// in each dimension a part is one box.
namespace accel::checkpoint {

/// What a part has of one block.
struct BlockBox {
  /// Where it begins in the part.
  std::vector<int64_t> within;
  /// Where it begins in the whole tensor.
  std::vector<int64_t> offset;
  std::vector<int64_t> sizes;
};

/// The boxes of a part of `sizes` that begins at `offset` of each block of a tensor of
/// `shape`. All lists have an entry for each dimension; the blocks divide shape and sizes.
std::vector<BlockBox> block_boxes(
    c10::IntArrayRef shape,
    c10::IntArrayRef sizes,
    c10::IntArrayRef offset,
    c10::IntArrayRef blocks);

} // namespace accel::checkpoint
