#pragma once

#include "distributed/rules/common.h"

#include <vector>

// What the forms of batch norm share (batch_norm.cpp, batch_norm_backward.cpp,
// sync_batch_norm.cpp).

namespace accel::distributed::batch_norm_rules {

/// The dimensions of a channel's elements.
inline std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) {
      dims.push_back(d);
    }
  }
  return dims;
}

/// `[C]` beside an input: `[1, C, 1, …]`.
inline at::Tensor of_channels(const at::Tensor& values, const at::Tensor& input) {
  Sizes sizes(input.dim(), 1);
  sizes[1] = -1;
  return values.view(sizes);
}

/// A tensor of one value a channel, which a kernel is given a slice of where the
/// channels are cut.
inline Placement of_channel_cut(const Placement& place) {
  return place.is_shard(1) ? place.with_dim(0) : Replicate();
}

/// The moments of each channel of an input that is cut in another dimension.
inline Moments channel_moments(
    const Call& call,
    const at::Tensor& local,
    c10::IntArrayRef sizes,
    const Placement& place) {
  const auto values = local.to(wide(local.scalar_type()));
  const auto [var, mean] =
      at::var_mean(values, all_but_channels(local), /*correction=*/0, false);
  const int64_t n = sizes[place.dim()];
  const int64_t count = c10::multiply_integers(sizes) / sizes[1];
  return combined_moments(call, mean, var, n, count / n, place);
}

} // namespace accel::distributed::batch_norm_rules
