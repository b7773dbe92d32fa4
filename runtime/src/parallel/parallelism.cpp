#include "parallel/parallelism.h"

#include "core/environment.h"
#include "parallel/parallelism_settings.h"

#include <c10/util/Exception.h>

#include <limits>

namespace accel {

std::string to_string(const ParallelSizes& sizes) {
  std::string text;
  for (const auto& axis : parallel::axes_of(sizes)) {
    text += (text.empty() ? "" : ", ") + axis.name + " " +
        std::to_string(axis.size);
  }
  return text.empty() ? "1" : text;
}

const char* to_string(CpCommStrategy strategy) {
  return strategy == CpCommStrategy::kAlltoall ? "alltoall" : "allgather";
}

namespace parallel {
namespace {

/// The argument, or the variable, or 1.
int64_t size_of(
    const std::optional<int64_t>& given,
    const ParallelismSetting& setting) {
  constexpr int64_t kMost = std::numeric_limits<int16_t>::max();
  const int64_t size = given.value_or(
      accel::detail::get_environment_integer(setting.variable, 1, kMost)
          .value_or(1));
  TORCH_CHECK(
      size >= 1 && size <= kMost, "accel: parallelism_config: ", setting.name,
      "_size is ", size, ", but an axis of the mesh has 1 to ", kMost,
      " processes. Leave it out for 1.");
  return size;
}

bool divides(const std::optional<ShardingStrategy>& strategy) {
  return strategy && *strategy != ShardingStrategy::kNoShard;
}

} // namespace

std::optional<ParallelSizes> resolve_parallelism(
    const std::optional<ParallelismConfig>& given,
    const std::optional<TorchTensorParallelPlugin>& tensor) {
  const auto tp = tensor ? tensor->tp_size() : std::nullopt;
  const bool wanted = given || tp ||
      accel::detail::get_environment_flag("ACCELERATE_USE_PARALLELISM_CONFIG")
          .value_or(false);
  if (!wanted) {
    return std::nullopt;
  }
  const ParallelismConfig config = given.value_or(ParallelismConfig());
  const auto& settings = parallelism_settings();
  ParallelSizes sizes;
  sizes.dp_replicate = size_of(config.dp_replicate_size(), settings[0]);
  sizes.dp_shard = size_of(config.dp_shard_size(), settings[1]);
  sizes.cp = size_of(config.cp_size(), settings[2]);
  sizes.sp = size_of(config.sp_size(), settings[3]);
  sizes.tp = size_of(config.tp_size() ? config.tp_size() : tp, settings[4]);
  TORCH_CHECK(
      !tp || *tp == sizes.tp, "accel: tp_size of torch_tp_plugin is ", *tp,
      ", and that of parallelism_config ", sizes.tp,
      ". Leave one of them out.");
  TORCH_CHECK(
      sizes.cp == 1 || sizes.sp == 1, "accel: parallelism_config: cp_size is ",
      sizes.cp, ", and sp_size is ", sizes.sp,
      ". Both share the positions of a sequence, in two ways. Leave one of them "
      "out.");
  return sizes;
}

CpCommStrategy resolve_cp_comm_strategy(
    const std::optional<ParallelismConfig>& given,
    const std::optional<ParallelSizes>& sizes) {
  if (!sizes || sizes->cp == 1) {
    return CpCommStrategy::kAllgather;
  }
  auto strategy = given && given->cp_handler()
      ? given->cp_handler()->cp_comm_strategy()
      : std::nullopt;
  for (const auto& setting : context_parallel_settings()) {
    const auto value = accel::detail::get_environment(setting.variable);
    if (!value) {
      continue;
    }
    const auto why = setting.check(*value);
    TORCH_CHECK(
        why.empty(), "accel: the environment variable ", setting.variable, ": ",
        why, ".");
    if (setting.name == std::string("cp_comm_strategy") && !strategy) {
      strategy = *value == to_string(CpCommStrategy::kAlltoall)
          ? CpCommStrategy::kAlltoall
          : CpCommStrategy::kAllgather;
    }
  }
  return strategy.value_or(CpCommStrategy::kAllgather);
}

std::optional<ShardingStrategy> strategy_with(
    const std::optional<ParallelSizes>& sizes,
    const std::optional<ShardingStrategy>& strategy) {
  if (!sizes) {
    return strategy;
  }
  if (!strategy) {
    return sizes->dp_shard > 1
        ? std::optional<ShardingStrategy>(ShardingStrategy::kFullShard)
        : std::nullopt;
  }
  TORCH_CHECK(
      divides(strategy) == (sizes->dp_shard > 1) || sizes->product() == 1,
      "accel: the sharding strategy is ", to_string(*strategy),
      " (fsdp_plugin, or zero_stage of deepspeed_plugin), and dp_shard_size of parallelism_config is ", sizes->dp_shard, ": ",
      divides(strategy)
          ? "nothing would be divided. Give the number of processes between "
            "which parameters are divided as dp_shard_size (--dp-shard), or leave "
            "the strategy out."
          : "nothing is divided. Leave dp_shard_size at 1 and give "
            "dp_replicate_size, or choose another strategy.");
  return strategy;
}

ParallelSizes sizes_of_launch(
    const std::optional<ParallelSizes>& given,
    const std::optional<ShardingStrategy>& strategy,
    const accel::detail::Environment& environment) {
  const int64_t processes = environment.world_size;
  if (given) {
    TORCH_CHECK(
        given->product() == processes, "accel: parallelism_config asks for ",
        given->product(), " processes (", to_string(*given),
        "), but there are ", processes,
        ". The product of the sizes must be the number of processes: change "
        "them, or start as many processes (accel launch --num-processes).");
    return *given;
  }
  ParallelSizes sizes;
  if (!divides(strategy)) {
    sizes.dp_replicate = processes;
  } else if (
      *strategy == ShardingStrategy::kFullShard ||
      *strategy == ShardingStrategy::kShardGradOp) {
    sizes.dp_shard = processes;
  } else {
    const int64_t here = environment.local_world_size;
    TORCH_CHECK(
        processes % here == 0, "accel: ", to_string(*strategy),
        " divides parameters between the processes of a host, but this host "
        "has ", here, " of the ", processes, " processes. Start as many on each "
        "host, or give dp_replicate_size and dp_shard_size "
        "(parallelism_config).");
    sizes.dp_shard = here;
    sizes.dp_replicate = processes / here;
  }
  return sizes;
}

std::vector<NamedSize> axes_of(const ParallelSizes& sizes) {
  std::vector<NamedSize> axes;
  for (const NamedSize& axis :
       {NamedSize{"dp_replicate", sizes.dp_replicate, Shared::kSamples},
        NamedSize{"dp_shard", sizes.dp_shard, Shared::kSamples},
        NamedSize{"cp", sizes.cp, Shared::kPositions},
        NamedSize{"sp", sizes.sp, Shared::kPositions},
        NamedSize{"tp", sizes.tp, Shared::kNothing}}) {
    if (axis.size > 1) {
      axes.push_back(axis);
    }
  }
  return axes;
}

} // namespace parallel
} // namespace accel
