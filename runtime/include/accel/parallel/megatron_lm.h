#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <optional>

namespace accel {

/// What Accelerate's class of this name asks of Megatron-LM, done by accel's own
/// distributed tensors; Megatron-LM itself, with its models and loaders, is not used.
/// For programs, commands and files that exist already: `torch_tp_plugin` and
/// `parallelism_config` say the same, and more.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions()
///             .match_single_device(true)
///             .megatron_lm_plugin(
///                 accel::MegatronLMPlugin().tp_degree(2).use_distributed_optimizer(true)));
///
/// `tp_degree` neighbouring processes compute parts of each layer; as many groups of
/// them as there are share out the samples. The degree must divide the number of
/// processes. What is not given is what the environment says (`MEGATRON_LM_…`), with or
/// without an argument; without one `ACCELERATE_USE_MEGATRON_LM` says whether. Not
/// together with `fsdp_plugin`, `deepspeed_plugin`, or sizes of `parallelism_config`.
/// Needs `match_single_device` with a degree above 1 and with
/// `use_distributed_optimizer`. docs/parallelism.md.
class MegatronLMPlugin {
 public:
  /// How many processes share a layer; which layers is `torch_tp_plugin`'s plan, or
  /// made from the model. Empty: `MEGATRON_LM_TP_DEGREE`, or 1.
  TORCH_ARG(std::optional<int64_t>, tp_degree) = std::nullopt;

  /// 1: there are no pipelines. Also `MEGATRON_LM_PP_DEGREE`. Throws for others.
  TORCH_ARG(std::optional<int64_t>, pp_degree) = std::nullopt;

  /// `gradient_accumulation_steps`, and must not contradict that where both are above
  /// 1. Also `MEGATRON_LM_NUM_MICRO_BATCHES`.
  TORCH_ARG(std::optional<int64_t>, num_micro_batches) = std::nullopt;

  /// Each step of a prepared optimizer first scales its gradients down to this norm,
  /// the global one; 0 for not. Empty: `MEGATRON_LM_GRADIENT_CLIPPING`, or 0, where
  /// Accelerate has 1.
  TORCH_ARG(std::optional<double>, gradient_clipping) = std::nullopt;

  /// Norms, dropout and residuals between the layers are computed in positions of the
  /// sequences, which the processes that share a layer share out: the word
  /// "sequence_parallel" of `torch_tp_plugin` for the whole model. Empty:
  /// `MEGATRON_LM_SEQUENCE_PARALLELISM`, or false. No effect with a `tp_degree` of 1.
  TORCH_ARG(std::optional<bool>, sequence_parallelism) = std::nullopt;

  /// `FullyShardedDataParallelPlugin::activation_checkpointing`, of the model's children.
  /// Empty: `MEGATRON_LM_RECOMPUTE_ACTIVATIONS`, or false.
  TORCH_ARG(std::optional<bool>, recompute_activations) = std::nullopt;

  /// Weights, gradients and optimizer states are divided between the groups that share
  /// out the samples, as with `ShardingStrategy::kShardGradOp`. Empty:
  /// `MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER`, or false.
  TORCH_ARG(std::optional<bool>, use_distributed_optimizer) = std::nullopt;
};

} // namespace accel
