#pragma once

#include <accel/options.h>

#include <optional>

namespace accel::parallel {

/// What the argument and the environment ask for; nothing where neither does.
/// Throws `c10::Error` where a variable has a value that cannot be honoured.
std::optional<ShardingStrategy> resolve_sharding(
    const std::optional<FullyShardedDataParallelPlugin>& given);

/// The same for what is saved; `FSDP_STATE_DICT_TYPE` counts for tensor parallelism
/// as well.
StateDictType resolve_state_dict_type(
    const std::optional<FullyShardedDataParallelPlugin>& given);

/// The same for what is gathered together.
AutoWrap resolve_auto_wrap(const std::optional<FullyShardedDataParallelPlugin>& given);

/// The same for whether states lie in the host's memory.
bool resolve_cpu_offload(const std::optional<FullyShardedDataParallelPlugin>& given);

/// The same for what is gathered ahead: nothing where nobody says it.
std::optional<bool> resolve_forward_prefetch(
    const std::optional<FullyShardedDataParallelPlugin>& given);
std::optional<BackwardPrefetch> resolve_backward_prefetch(
    const std::optional<FullyShardedDataParallelPlugin>& given);

/// The same for whether activations are computed again in backward.
bool resolve_activation_checkpointing(
    const std::optional<FullyShardedDataParallelPlugin>& given);

/// What the policy of types says instead of `given`, the option `mixed_precision`.
/// Throws for what cannot be had, and where the two contradict each other.
MixedPrecision resolve_param_dtype(
    const std::optional<FullyShardedDataParallelPlugin>& plugin,
    MixedPrecision given);

/// Nothing where gradients are summed in their own type.
std::optional<c10::ScalarType> resolve_reduce_dtype(
    const std::optional<FullyShardedDataParallelPlugin>& plugin);

} // namespace accel::parallel
