#pragma once

#include <torch/arg.h>
#include <torch/enum.h>

#include <variant>

namespace accel {

/// What a loss or a metric is with respect to the samples of its batch: their
/// mean (`torch::kMean`) or their sum (`torch::kSum`). Needed to compute the
/// value for the global batch from those of its parts.
using Reduction = std::variant<torch::enumtype::kMean, torch::enumtype::kSum>;

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
