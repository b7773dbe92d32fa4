#pragma once

#include <torch/arg.h>
#include <torch/types.h>

namespace accel {

/// What `torch::Tensor::backward` takes besides.
class BackwardOptions {
 public:
  /// Keep the graph, for another backward through it.
  TORCH_ARG(bool, retain_graph) = false;

  /// Make the gradients differentiable. One process only: gradients that have
  /// been averaged over processes have no graph.
  TORCH_ARG(bool, create_graph) = false;

  /// The gradient that backward begins with, of the sizes of what is
  /// differentiated, which then need not be a scalar; undefined: 1. What is
  /// said of the loss is said of the sum of their product.
  TORCH_ARG(torch::Tensor, gradient);
};

} // namespace accel
