#pragma once

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace accel::test {

/// Whether a tensor is cut in this dimension.
inline bool is_cut(const torch::Tensor& tensor, int64_t dim) {
  return distributed::is_distributed(tensor) &&
      distributed::placements(tensor).at(0).is_shard(dim);
}

/// Whether each process has a part of a sum.
inline bool is_sum(const torch::Tensor& tensor) {
  return distributed::is_distributed(tensor) &&
      distributed::placements(tensor).at(0).is_sum();
}

inline void expect_equal(
    Accelerator& accelerator,
    const torch::Tensor& plain,
    const torch::Tensor& got) {
  EXPECT_TRUE(torch::allclose(plain, accelerator.full(got), 1e-12, 1e-12));
}

} // namespace accel::test
