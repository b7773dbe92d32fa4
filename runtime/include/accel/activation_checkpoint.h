#pragma once

#include <accel/export.h>

#include <torch/types.h>

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {
namespace detail {

using Segment = std::function<std::vector<torch::Tensor>(
    const std::vector<torch::Tensor>&)>;

ACCEL_API std::vector<torch::Tensor> checkpoint_segment(
    const Segment& segment,
    const std::vector<torch::Tensor>& inputs);

/// Calls `function` with the tensors of a vector.
template <bool one, typename F, size_t... I>
Segment segment_of(F function, std::index_sequence<I...>) {
  return [function = std::move(function)](
             const std::vector<torch::Tensor>& inputs) mutable
             -> std::vector<torch::Tensor> {
    if constexpr (one) {
      return {function(inputs[I]...)};
    } else {
      return function(inputs[I]...);
    }
  };
}

} // namespace detail

/// Activation checkpointing, PyTorch's `torch.utils.checkpoint.checkpoint`: calls
/// `function(inputs...)` and keeps none of what its operators would keep for
/// backward; backward calls it once more and goes back through that. Less memory
/// for one more forward pass of the function.
///
///     for (auto& block : blocks) {
///       x = accel::checkpoint_activations(block, x);
///     }
///
/// `function`: a module holder, or anything that can be called, which is copied; it
/// takes tensors of any sizes and dtypes, distributed ones included, and returns a
/// tensor or a vector of tensors. Parameters that it uses get their gradients as
/// ever, once for each backward. Random numbers are drawn again as they were
/// (dropout), and autocast is as it was. What else the second call changes is
/// changed twice: the running statistics of batch norm.
///
/// Throws `c10::Error` where the function uses a tensor with a graph that is not
/// among the inputs: pass it. Without gradients (`NoGradGuard`) it only calls the
/// function. One process or several; collective where operators of the function
/// are.
template <typename F, typename... Inputs>
auto checkpoint_activations(F function, const Inputs&... inputs) {
  using Result = std::decay_t<decltype(function(inputs...))>;
  constexpr bool one = std::is_same_v<Result, torch::Tensor>;
  static_assert(
      (std::is_convertible_v<Inputs, torch::Tensor> && ...),
      "accel::checkpoint_activations: inputs are tensors; capture everything else");
  static_assert(
      one || std::is_same_v<Result, std::vector<torch::Tensor>>,
      "accel::checkpoint_activations: the function must return a tensor or a "
      "vector of tensors");
  auto results = detail::checkpoint_segment(
      detail::segment_of<one>(
          std::move(function), std::index_sequence_for<Inputs...>()),
      {inputs...});
  if constexpr (one) {
    return std::move(results[0]);
  } else {
    return results;
  }
}

} // namespace accel
