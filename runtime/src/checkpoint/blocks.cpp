#include "checkpoint/blocks.h"

namespace accel::checkpoint {

std::vector<BlockBox> block_boxes(
    c10::IntArrayRef shape,
    c10::IntArrayRef sizes,
    c10::IntArrayRef offset,
    c10::IntArrayRef blocks) {
  std::vector<BlockBox> boxes{{}};
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t rows = sizes[i] / blocks[i];
    std::vector<BlockBox> next;
    for (const auto& box : boxes) {
      for (int64_t block = 0; block < blocks[i]; ++block) {
        next.push_back(box);
        next.back().within.push_back(block * rows);
        next.back().offset.push_back(block * (shape[i] / blocks[i]) + offset[i]);
        next.back().sizes.push_back(rows);
      }
    }
    boxes = std::move(next);
  }
  return boxes;
}

} // namespace accel::checkpoint
