#pragma once

#include <accel/export.h>

#include <c10/core/ScalarType.h>
#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel {

/// What of a training's state is divided between the processes instead of being
/// on all of them; docs/parallelism.md.
enum class ShardingStrategy {
  /// Parameters, gradients and optimizer states (ZeRO-3). An operator gathers the
  /// weight that it reads, in forward and again in backward.
  kFullShard,
  /// The same, but a weight that has been gathered in forward stays so until the
  /// backward is done (ZeRO-2): more memory, half the gathering.
  kShardGradOp,
  /// Nothing: plain data parallelism.
  kNoShard,
  /// FULL_SHARD between the processes of each host, of which every one so has the
  /// whole training state; gradients are summed over the hosts. Other groups than
  /// hosts: `ParallelismConfig`.
  kHybridShard,
  /// SHARD_GRAD_OP likewise.
  kHybridShardZero2,
};

/// "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD" or
/// "HYBRID_SHARD_ZERO2".
ACCEL_API const char* to_string(ShardingStrategy strategy);

/// What `save_state` writes of parameters and optimizer states that are divided.
enum class StateDictType {
  /// Whole tensors: the files of a model that is not divided. They are put together
  /// one at a time.
  kFullStateDict,
  /// Each process writes what it holds, and nothing is put together
  /// (docs/parallelism.md).
  kShardedStateDict,
};

/// "FULL_STATE_DICT" or "SHARDED_STATE_DICT".
ACCEL_API const char* to_string(StateDictType type);

/// When the weights of a unit are gathered that backward needs once more, PyTorch's enum
/// of this name. Results do not depend on it.
enum class BackwardPrefetch {
  /// The next unit's before the gradients of the present one are computed: they travel
  /// meanwhile.
  kBackwardPre,
  /// The next unit's when the gradients of the present one have been computed: they travel
  /// beside these.
  kBackwardPost,
  /// When the next unit is needed, and these gradients have been summed.
  kNoPrefetch,
};

/// "BACKWARD_PRE", "BACKWARD_POST" or "NO_PREFETCH".
ACCEL_API const char* to_string(BackwardPrefetch prefetch);

/// Which modules are *units*, whose parameters are gathered together, in one message
/// (docs/parallelism.md). Speed and memory depend on it, results do not.
enum class AutoWrapPolicy {
  /// Every module of one of these classes, `transformer_cls_names_to_wrap`.
  kTransformerBasedWrap,
  /// Every module with `min_num_params` parameters that are in no unit within it.
  kSizeBasedWrap,
  /// None: the model is one unit.
  kNoWrap,
};

/// "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP" or "NO_WRAP".
ACCEL_API const char* to_string(AutoWrapPolicy policy);

/// An `AutoWrapPolicy` with what it needs, as it is in force.
struct AutoWrap {
  /// Empty: the model's children (docs/parallelism.md).
  std::optional<AutoWrapPolicy> policy;
  /// Of TRANSFORMER_BASED_WRAP.
  std::vector<std::string> class_names;
  /// Of SIZE_BASED_WRAP.
  int64_t min_num_params = 0;

  bool operator==(const AutoWrap& other) const {
    return policy == other.policy && class_names == other.class_names &&
        min_num_params == other.min_num_params;
  }
};

/// "TRANSFORMER_BASED_WRAP of Block", "children of the model" …
ACCEL_API std::string to_string(const AutoWrap& wrap);

/// In which types a divided model is used, PyTorch's class of FSDP2 of this name.
class MixedPrecisionPolicy {
 public:
  /// `torch::kBFloat16` or `torch::kHalf`: the operators that autocast casts read
  /// weights in this type, in which they are also gathered; the parameters themselves
  /// keep theirs. The same as the option `mixed_precision`, which must not say another
  /// one. Throws for other types.
  TORCH_ARG(std::optional<c10::ScalarType>, param_dtype) = std::nullopt;
  /// The type in which gradients are added over the processes; the sum is a gradient of
  /// the parameter's type. One with fewer bits halves what is sent, and gradients are
  /// rounded on their way: the numbers are then not quite those of one device. Not with
  /// tp, cp or sp, beside which each gradient is summed by itself; of no effect in
  /// `lomo_backward` and on the sparse ones. Empty: the parameter's.
  TORCH_ARG(std::optional<c10::ScalarType>, reduce_dtype) = std::nullopt;
  /// Refused: accel does not take over a module's forward, whose result this casts.
  TORCH_ARG(std::optional<c10::ScalarType>, output_dtype) = std::nullopt;
  /// Likewise, but for false. Autocast casts what each operator needs.
  TORCH_ARG(std::optional<bool>, cast_forward_inputs) = std::nullopt;
};

/// Sharded data parallelism, Accelerate's class of this name: after `prepare` each
/// process holds a part of each parameter of the models, of its gradient, and of
/// what the optimizer keeps for it, and they compute what one device computes.
/// Nothing else in the program changes: parameters keep their names, sizes and
/// types, and are distributed tensors (accel/distributed/tensor.h).
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions()
///             .match_single_device(true)
///             .fsdp_plugin(accel::FullyShardedDataParallelPlugin()));
///
/// A parameter is cut between its rows (dimension 0). One with fewer rows than
/// there are processes, one with sparse gradients, and one whose memory other
/// tensors share stays whole on every process.
///
/// Needs `match_single_device`. Without an argument the environment decides, with
/// Accelerate's variables: `ACCELERATE_USE_FSDP` whether, and
/// `FSDP_SHARDING_STRATEGY` how. Other variables of Accelerate's that ask for
/// something that accel does not do (`FSDP_USE_ORIG_PARAMS=false`) are errors.
class FullyShardedDataParallelPlugin {
 public:
  /// Empty: `FSDP_SHARDING_STRATEGY`, or FULL_SHARD.
  TORCH_ARG(std::optional<ShardingStrategy>, sharding_strategy) = std::nullopt;
  /// Accelerate's version of FSDP, 1 or 2; empty: `FSDP_VERSION`, or 1. What is
  /// computed is the same. In version 2 `FSDP_RESHARD_AFTER_FORWARD` says the
  /// strategy, and checkpoints are in parts unless somebody says otherwise.
  TORCH_ARG(std::optional<int64_t>, fsdp_version) = std::nullopt;
  /// Empty: `FSDP_STATE_DICT_TYPE`, or FULL_STATE_DICT; with version 2
  /// SHARDED_STATE_DICT.
  TORCH_ARG(std::optional<StateDictType>, state_dict_type) = std::nullopt;
  /// Which modules are units. What a unit holds beside the units within it is gathered
  /// with it, and what is in none with the model. Empty: `FSDP_AUTO_WRAP_POLICY`, or the
  /// model's children.
  TORCH_ARG(std::optional<AutoWrapPolicy>, auto_wrap_policy) = std::nullopt;
  /// For TRANSFORMER_BASED_WRAP: classes of modules, with or without namespace and
  /// "Impl": "Block", "TransformerEncoderLayer". One that no prepared model has is an
  /// error at the first step. Empty: `FSDP_TRANSFORMER_CLS_TO_WRAP`, names between
  /// commas, or `TransformerEncoderLayer` and `TransformerDecoderLayer`.
  TORCH_ARG(std::vector<std::string>, transformer_cls_names_to_wrap);
  /// For SIZE_BASED_WRAP. Empty: `FSDP_MIN_NUM_PARAMS`, or 100 000 000.
  TORCH_ARG(std::optional<int64_t>, min_num_params) = std::nullopt;
  /// Parameters, gradients and what optimizers keep lie in the host's memory while nobody
  /// computes with them. Where the processes compute on CPUs they do anyway; on GPUs they
  /// come for that, and the numbers are those without. Empty: `FSDP_OFFLOAD_PARAMS`, or
  /// false.
  TORCH_ARG(std::optional<bool>, cpu_offload) = std::nullopt;
  /// In the order of the last forward the weights of the next unit are gathered while the
  /// present one computes. A gathering that turns out not to be needed is dropped; at most
  /// two units are gathered at a time, as without. Empty: `FSDP_FORWARD_PREFETCH`, or where
  /// it was found to be quicker (docs/parallelism.md).
  TORCH_ARG(std::optional<bool>, forward_prefetch) = std::nullopt;
  /// The same for FULL_SHARD's backward. Empty: `FSDP_BACKWARD_PREFETCH`, or BACKWARD_PRE
  /// where it was found to be quicker, else NO_PREFETCH.
  TORCH_ARG(std::optional<BackwardPrefetch>, backward_prefetch) = std::nullopt;
  /// One unit at most is gathered ahead, in any case: false is refused.
  TORCH_ARG(bool, limit_all_gathers) = true;
  /// What operators keep for backward is let go unit by unit, and computed again in
  /// backward: less memory, and the same numbers within rounding; as one process, with
  /// which it works too, the same bits (docs/parallelism.md). Parameters must not be
  /// changed between forward and backward: backward then throws. Throws where the program
  /// runs within Python. Empty: `FSDP_ACTIVATION_CHECKPOINTING`, or false.
  TORCH_ARG(std::optional<bool>, activation_checkpointing) = std::nullopt;
  /// In which types weights are read and gradients summed. Empty: as `mixed_precision`
  /// says, and in the parameter's.
  TORCH_ARG(std::optional<MixedPrecisionPolicy>, mixed_precision_policy) = std::nullopt;
};

} // namespace accel
