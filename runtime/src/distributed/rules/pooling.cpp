#include "distributed/rules/table.h"
#include "distributed/rules/strategy.h"

#include <ATen/ATen.h>

// Pooling, upsampling, sampling and folding work on each channel of each sample
// by itself: a cut of samples or channels stays. A cut along the picture runs
// whole. Inputs without a batch have one dimension less in front.

namespace accel::distributed::pooling_rules {
namespace {

/// The ways of an operator whose tensors all have the same leading dimensions,
/// `leading` of them.
c10::SmallVector<Strategy, 3> planes(const Call& call, int64_t leading) {
  c10::SmallVector<Strategy, 3> ways;
  for (int64_t d = 0; d < leading; ++d) {
    Strategy way;
    way.arguments.assign(call.info().tensors.size(), static_cast<int8_t>(d));
    way.results.assign(call.info().results, static_cast<int8_t>(d));
    ways.push_back(std::move(way));
  }
  return ways;
}

/// The way of an operator that is linear in its first argument.
Strategy linear(const Call& call) {
  Strategy way;
  way.arguments.assign(call.info().tensors.size(), kWhole);
  way.arguments[0] = kSum;
  way.results.assign(call.info().results, kSum);
  return way;
}

/// All tensors are planes of `spatial` dimensions.
template <int spatial>
bool each_plane(Call& call) {
  return in_parts(call, planes(call, call.tensor(0).dim() - spatial));
}

/// The same, and linear in the first one (most gradients, and averages).
template <int spatial>
bool linear_plane(Call& call) {
  auto ways = planes(call, call.tensor(0).dim() - spatial);
  ways.push_back(linear(call));
  return in_parts(call, ways);
}

/// Gradients of upsampling are given the sizes of the input.
template <int spatial>
bool upsample_backward(Call& call) {
  if (!call.info().writes.empty()) {
    return false;
  }
  auto ways = planes(call, call.tensor(0).dim() - spatial);
  ways.push_back(linear(call));
  const auto chosen = choose(call, ways);
  if (!chosen) {
    return false;
  }
  const auto dim = chosen.strategy->arguments[0];
  if (dim >= 0) {
    const auto at = call.index("input_size");
    const auto sizes = call.integers(at);
    std::vector<int64_t> local(sizes.begin(), sizes.end());
    local[dim] = call.axis().rows(chosen.n, chosen.cut);
    call.set(at, std::move(local));
  }
  run_strategy(call, chosen);
  return true;
}

/// self and the random numbers `[samples, channels, spatial]`, which have a
/// dimension of samples where self has none.
template <int spatial>
bool fractional_max_pool(Call& call) {
  const bool batched = call.tensor(0).dim() == spatial + 2;
  const Strategy channels = batched ? Strategy{{1, 1}, {1, 1}} : Strategy{{0, 1}, {0, 0}};
  const Strategy samples{{0, 0}, {0, 0}};
  return batched ? in_parts(call, {samples, channels})
                 : in_parts(call, channels);
}

/// input, grid.
bool grid_sampler(Call& call) {
  return in_parts(
      call,
      {Strategy{{0, 0}, {0}}, Strategy{{1, kWhole}, {1}}, Strategy{{kSum, kWhole}, {kSum}}});
}

/// grad_output, input, grid.
bool grid_sampler_backward(Call& call) {
  return in_parts(
      call,
      {Strategy{{0, 0, 0}, {0, 0}},
       Strategy{{1, 1, kWhole}, {1, kSum}},
       Strategy{{kSum, kWhole, kWhole}, {kSum, kSum}}});
}

/// self, grid, grad_output.
bool cudnn_grid_sampler_backward(Call& call) {
  return in_parts(
      call, {Strategy{{0, 0, 0}, {0, 0}}, Strategy{{1, kWhole, 1}, {1, kSum}}});
}

/// theta and the sizes of the picture, as a list or one by one.
bool affine_grid(Call& call) {
  if (!call.info().writes.empty()) {
    return false;
  }
  const c10::SmallVector<Strategy, 2> ways{Strategy{{0}, {0}}, Strategy{{kSum}, {kSum}}};
  const auto chosen = choose(call, ways);
  if (!chosen) {
    return false;
  }
  if (chosen.strategy->arguments[0] == 0) {
    const auto rows = call.axis().rows(chosen.n, chosen.cut);
    if (call.at(1).isInt()) {
      call.set(1, rows);
    } else {
      const auto sizes = call.integers(1);
      std::vector<int64_t> local(sizes.begin(), sizes.end());
      local[0] = rows;
      call.set(1, std::move(local));
    }
  }
  run_strategy(call, chosen);
  return true;
}

/// im2col and col2im: samples, of an input of `dims` dimensions.
template <int dims>
bool fold(Call& call) {
  auto ways = planes(call, call.tensor(0).dim() == dims ? 1 : 0);
  ways.push_back(linear(call));
  return in_parts(call, ways);
}

constexpr auto kPlanes = "samples, channels";
constexpr auto kLinear = "samples, channels; P";
constexpr auto kGradient = "samples, channels; P of the first argument";

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::max_pool2d_with_indices", each_plane<2>, kPlanes, "nothing"},
      {"aten::max_pool3d_with_indices", each_plane<3>, kPlanes, "nothing"},
      {"aten::max_pool2d_with_indices_backward", linear_plane<2>, kGradient, "nothing"},
      {"aten::max_pool3d_with_indices_backward", linear_plane<3>, kGradient, "nothing"},
      {"aten::max_pool2d_backward", linear_plane<2>, kGradient, "nothing"},
      {"aten::adaptive_max_pool2d", each_plane<2>, kPlanes, "nothing"},
      {"aten::adaptive_max_pool3d", each_plane<3>, kPlanes, "nothing"},
      {"aten::adaptive_max_pool2d_backward", linear_plane<2>, kGradient, "nothing"},
      {"aten::adaptive_max_pool3d_backward", linear_plane<3>, kGradient, "nothing"},
      {"aten::avg_pool2d", linear_plane<2>, kLinear, "nothing"},
      {"aten::avg_pool3d", linear_plane<3>, kLinear, "nothing"},
      {"aten::avg_pool2d_backward", linear_plane<2>, kGradient, "nothing"},
      {"aten::avg_pool3d_backward", linear_plane<3>, kGradient, "nothing"},
      {"aten::_adaptive_avg_pool2d", linear_plane<2>, kLinear, "nothing"},
      {"aten::_adaptive_avg_pool3d", linear_plane<3>, kLinear, "nothing"},
      {"aten::_adaptive_avg_pool2d_backward", linear_plane<2>, kGradient, "nothing"},
      {"aten::_adaptive_avg_pool3d_backward", linear_plane<3>, kGradient, "nothing"},
      {"aten::fractional_max_pool2d", fractional_max_pool<2>, kPlanes, "nothing"},
      {"aten::fractional_max_pool3d", fractional_max_pool<3>, kPlanes, "nothing"},
      {"aten::fractional_max_pool2d_backward", linear_plane<2>, kGradient, "nothing"},
      {"aten::fractional_max_pool3d_backward", linear_plane<3>, kGradient, "nothing"},
      {"aten::max_unpool2d", linear_plane<2>, kGradient, "nothing"},
      {"aten::max_unpool3d", linear_plane<3>, kGradient, "nothing"},
      {"aten::upsample_nearest1d", linear_plane<1>, kLinear, "nothing"},
      {"aten::upsample_nearest2d", linear_plane<2>, kLinear, "nothing"},
      {"aten::upsample_nearest3d", linear_plane<3>, kLinear, "nothing"},
      {"aten::_upsample_nearest_exact1d", linear_plane<1>, kLinear, "nothing"},
      {"aten::_upsample_nearest_exact2d", linear_plane<2>, kLinear, "nothing"},
      {"aten::_upsample_nearest_exact3d", linear_plane<3>, kLinear, "nothing"},
      {"aten::upsample_linear1d", linear_plane<1>, kLinear, "nothing"},
      {"aten::upsample_bilinear2d", linear_plane<2>, kLinear, "nothing"},
      {"aten::upsample_trilinear3d", linear_plane<3>, kLinear, "nothing"},
      {"aten::upsample_bicubic2d", linear_plane<2>, kLinear, "nothing"},
      {"aten::_upsample_bilinear2d_aa", linear_plane<2>, kLinear, "nothing"},
      {"aten::_upsample_bicubic2d_aa", linear_plane<2>, kLinear, "nothing"},
      {"aten::upsample_nearest1d_backward", upsample_backward<1>, kLinear, "nothing"},
      {"aten::upsample_nearest2d_backward", upsample_backward<2>, kLinear, "nothing"},
      {"aten::upsample_nearest3d_backward", upsample_backward<3>, kLinear, "nothing"},
      {"aten::_upsample_nearest_exact1d_backward", upsample_backward<1>, kLinear, "nothing"},
      {"aten::_upsample_nearest_exact2d_backward", upsample_backward<2>, kLinear, "nothing"},
      {"aten::_upsample_nearest_exact3d_backward", upsample_backward<3>, kLinear, "nothing"},
      {"aten::upsample_linear1d_backward", upsample_backward<1>, kLinear, "nothing"},
      {"aten::upsample_bilinear2d_backward", upsample_backward<2>, kLinear, "nothing"},
      {"aten::upsample_trilinear3d_backward", upsample_backward<3>, kLinear, "nothing"},
      {"aten::upsample_bicubic2d_backward", upsample_backward<2>, kLinear, "nothing"},
      {"aten::_upsample_bilinear2d_aa_backward", upsample_backward<2>, kLinear, "nothing"},
      {"aten::_upsample_bicubic2d_aa_backward", upsample_backward<2>, kLinear, "nothing"},
      {"aten::grid_sampler_2d", grid_sampler, "samples of both; channels of the input; P of the input", "nothing"},
      {"aten::grid_sampler_3d", grid_sampler, "as grid_sampler_2d", "nothing"},
      {"aten::_grid_sampler_2d_cpu_fallback", grid_sampler, "as grid_sampler_2d", "nothing"},
      {"aten::cudnn_grid_sampler", grid_sampler, "as grid_sampler_2d", "nothing"},
      {"aten::grid_sampler_2d_backward", grid_sampler_backward, "as grid_sampler_2d; with cut channels the grid's gradient is P", "nothing"},
      {"aten::grid_sampler_3d_backward", grid_sampler_backward, "as grid_sampler_2d_backward", "nothing"},
      {"aten::cudnn_grid_sampler_backward", cudnn_grid_sampler_backward, "as grid_sampler_2d_backward", "nothing"},
      {"aten::affine_grid_generator", affine_grid, "samples; P", "nothing"},
      {"aten::cudnn_affine_grid_generator", affine_grid, "samples; P", "nothing"},
      {"aten::cudnn_affine_grid_generator_backward", affine_grid, "samples; P", "nothing"},
      {"aten::im2col", fold<4>, "samples; P", "nothing"},
      {"aten::col2im", fold<3>, "samples; P", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::pooling_rules
