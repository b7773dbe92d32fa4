#include "parallel/megatron_options.h"

#include "core/environment.h"
#include "parallel/megatron_settings.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <string>

namespace accel::parallel {
namespace {

/// What the argument says, by name.
std::map<std::string, std::string> said_by(const MegatronLMPlugin& plugin) {
  std::map<std::string, std::string> said;
  const auto add = [&](const char* name, const auto& value) {
    if (value) {
      said[name] = text_of_value(*value);
    }
  };
  add("tp_degree", plugin.tp_degree());
  add("pp_degree", plugin.pp_degree());
  add("num_micro_batches", plugin.num_micro_batches());
  add("gradient_clipping", plugin.gradient_clipping());
  add("sequence_parallelism", plugin.sequence_parallelism());
  add("recompute_activations", plugin.recompute_activations());
  add("use_distributed_optimizer", plugin.use_distributed_optimizer());
  return said;
}

} // namespace

std::optional<MegatronOptions> resolve_megatron(
    const std::optional<MegatronLMPlugin>& given) {
  if (!given &&
      !accel::detail::get_environment_flag("ACCELERATE_USE_MEGATRON_LM")
           .value_or(false)) {
    return std::nullopt;
  }
  auto said = said_by(given.value_or(MegatronLMPlugin()));
  for (const auto& setting : megatron_settings()) {
    std::string by = "megatron_lm_plugin";
    if (said.count(setting.name) == 0) {
      const auto value = accel::detail::get_environment(setting.variable);
      if (!value) {
        continue;
      }
      said[setting.name] = *value;
      by = std::string("the environment variable ") + setting.variable;
    }
    const auto why = setting.check(said[setting.name]);
    TORCH_CHECK(
        why.empty(), "accel: ", setting.name, " of ", by, ": ", why, ".");
  }
  const auto number = [&](const char* name, const char* otherwise) {
    const auto found = said.find(name);
    return std::strtod(
        found == said.end() ? otherwise : found->second.c_str(), nullptr);
  };
  MegatronOptions options;
  options.tp = static_cast<int64_t>(number("tp_degree", "1"));
  options.gradient_accumulation_steps =
      static_cast<int64_t>(number("num_micro_batches", "1"));
  options.gradient_clipping = number("gradient_clipping", "0");
  const auto flag = [&](const char* name) {
    return said.count(name) != 0 && is_true(said[name]);
  };
  options.sequence_parallelism = flag("sequence_parallelism");
  options.distributed_optimizer = flag("use_distributed_optimizer");
  options.recompute_activations = flag("recompute_activations");
  return options;
}

ParallelSizes fill_mesh(
    const ParallelSizes& given,
    const std::optional<ShardingStrategy>& strategy,
    int64_t processes) {
  TORCH_CHECK(
      processes % given.product() == 0, "accel: tp_degree is ", given.tp,
      ", and there are ", processes,
      " processes, which so many do not divide. Give a degree that does, or start "
      "another number (accel launch --num-processes).");
  ParallelSizes sizes = given;
  (strategy ? sizes.dp_shard : sizes.dp_replicate) = processes / given.product();
  return sizes;
}

} // namespace accel::parallel
