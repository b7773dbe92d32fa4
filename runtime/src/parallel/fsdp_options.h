#pragma once

#include <accel/parallel/fully_sharded.h>

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

} // namespace accel::parallel
