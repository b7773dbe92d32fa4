#pragma once

#include <accel/options.h>

#include <optional>

namespace accel::parallel {

/// What Megatron-LM's settings mean here.
struct MegatronOptions {
  int64_t tp = 1;
  /// Activations between layers are shared out along tp.
  bool sequence_parallelism = false;
  /// SHARD_GRAD_OP between the processes that share out the samples.
  bool distributed_optimizer = false;
  bool recompute_activations = false;
  /// 1 where they do not say.
  int64_t gradient_accumulation_steps = 1;
  /// 0 for none.
  double gradient_clipping = 0;
};

/// What the argument and the environment ask for; nothing where neither does. Throws
/// `c10::Error` for what cannot be honoured.
std::optional<MegatronOptions> resolve_megatron(
    const std::optional<MegatronLMPlugin>& given);

/// The mesh of this launch: what is left beside `given` is for data parallelism, divided
/// with a strategy. Throws where it does not divide the number of processes.
ParallelSizes fill_mesh(
    const ParallelSizes& given,
    const std::optional<ShardingStrategy>& strategy,
    int64_t processes);

} // namespace accel::parallel
