#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>

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
/// something that accel does not do (`FSDP_OFFLOAD_PARAMS=true`) are errors.
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
};

} // namespace accel
