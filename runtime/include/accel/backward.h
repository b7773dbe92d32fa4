#pragma once

#include <torch/arg.h>

namespace accel {

/// What `torch::Tensor::backward` takes besides.
class BackwardOptions {
 public:
  /// Keep the graph, for another backward through it.
  TORCH_ARG(bool, retain_graph) = false;

  /// Make the gradients differentiable. One process only: gradients that have
  /// been averaged over processes have no graph.
  TORCH_ARG(bool, create_graph) = false;
};

} // namespace accel
