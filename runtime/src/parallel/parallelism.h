#pragma once

#include <accel/parallel/fully_sharded.h>
#include <accel/parallel/parallelism_config.h>
#include <accel/parallel/tensor_parallel.h>

#include <optional>
#include <string>
#include <vector>

namespace accel::detail {
struct Environment;
} // namespace accel::detail

namespace accel::parallel {

/// What the arguments and the environment ask for; nothing where none does.
/// Throws `c10::Error` for a size below 1, for cp and sp together, and where the
/// arguments contradict each other.
std::optional<ParallelSizes> resolve_parallelism(
    const std::optional<ParallelismConfig>& given,
    const std::optional<TorchTensorParallelPlugin>& tensor);

/// What the argument or the environment asks for where there are several processes
/// along cp. Throws for an unknown word, and where the environment asks for another
/// engine than PyTorch's (`PARALLELISM_CONFIG_CP_BACKEND`).
CpCommStrategy resolve_cp_comm_strategy(
    const std::optional<ParallelismConfig>& given,
    const std::optional<ParallelSizes>& sizes);

/// The strategy of parameters behind both: FULL_SHARD where only sizes were
/// given. Throws where the two contradict each other.
std::optional<ShardingStrategy> strategy_with(
    const std::optional<ParallelSizes>& sizes,
    const std::optional<ShardingStrategy>& strategy);

/// The sizes of all processes of this launch: those that were given, or what the
/// strategy makes of the hosts. Throws where they do not make the number of
/// processes.
ParallelSizes sizes_of_launch(
    const std::optional<ParallelSizes>& given,
    const std::optional<ShardingStrategy>& strategy,
    const detail::Environment& environment);

/// What of a batch the processes along an axis share out.
enum class Shared { kNothing, kSamples, kPositions };

/// One axis of the mesh: its name in Accelerate and its processes.
struct NamedSize {
  std::string name;
  int64_t size;
  Shared shared;
};

/// The axes of more than one process, in the mesh's order.
std::vector<NamedSize> axes_of(const ParallelSizes& sizes);

} // namespace accel::parallel
