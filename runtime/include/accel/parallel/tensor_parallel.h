#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel {

/// Tensor parallelism: the processes along the axis tp compute parts of each layer,
/// with the same samples. Accelerate's class of this name; docs/parallelism.md.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions()
///             .match_single_device(true)
///             .torch_tp_plugin(
///                 accel::TorchTensorParallelPlugin().tp_size(2).plan(
///                     {{"blocks.*.up", "colwise"}, {"blocks.*.down", "rowwise"}})));
///
/// Nothing else in the program changes: `prepare` makes the weights distributed
/// tensors (accel/distributed/tensor.h), and operators do the rest. A plan decides
/// how fast the training is and how much memory it takes, never what it computes.
class TorchTensorParallelPlugin {
 public:
  /// Names and words.
  using Plan = std::vector<std::pair<std::string, std::string>>;

  /// How many processes share a layer. Empty: `tp_size` of `parallelism_config`.
  TORCH_ARG(std::optional<int64_t>, tp_size) = std::nullopt;

  /// Names of modules, as `named_modules()` has them, in which `*` stands for
  /// anything without a dot, each with one of these words of PyTorch's and
  /// Accelerate's:
  ///
  /// - "colwise" (ColwiseParallel): each process computes some of the outputs of a
  ///   `Linear` (its weight is cut between rows, and its bias), some columns of an
  ///   `Embedding`, some heads of a `MultiheadAttention`.
  /// - "rowwise" (RowwiseParallel): each process computes with some of the inputs
  ///   of a `Linear` (its weight is cut between columns); what they compute is
  ///   summed. Of an `Embedding` each process keeps some rows.
  /// - "sequence_parallel" (SequenceParallel): a norm or dropout, or all norms of a
  ///   module that holds others ("" names the model itself), computes on activations
  ///   of which each process has some positions; its parameters are whole, and so are
  ///   their gradients. What a "rowwise" layer leaves as parts of a sum is summed
  ///   position by position, and residuals stay so until a "colwise" layer gathers
  ///   them. Positions are dimension 1, or 0 in a model with `MultiheadAttention`
  ///   (LibTorch's takes [time, batch, features]), or what
  ///   "sequence_parallel(sequence_dim=0)" says, of tensors of three dimensions or
  ///   more; one with fewer positions than processes stays whole.
  /// - "replicate": not cut.
  ///
  /// Also "colwise_rep", "local_colwise", "rowwise_rep" and "local_rowwise", which
  /// are the same here: operators bring what they are given to where they need it.
  ///
  /// What is not named is not cut; a plan that has no other word than
  /// "sequence_parallel" leaves the layers to the plan made from the model. Empty: `ACCEL_TP_PLAN` in the environment
  /// ("blocks.*.up=colwise,blocks.*.down=rowwise"), or a plan made from the model:
  /// a `Linear` colwise and the one behind it rowwise, likewise within transformer
  /// layers, attention by heads, embeddings by columns.
  TORCH_ARG(Plan, plan);
};

} // namespace accel
