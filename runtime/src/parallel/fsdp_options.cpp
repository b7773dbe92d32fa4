#include "parallel/fsdp_options.h"

#include "core/environment.h"
#include "parallel/fsdp_settings.h"

#include <c10/util/Exception.h>

namespace accel {

const char* to_string(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::kFullShard:
      return "FULL_SHARD";
    case ShardingStrategy::kShardGradOp:
      return "SHARD_GRAD_OP";
    case ShardingStrategy::kNoShard:
      return "NO_SHARD";
    case ShardingStrategy::kHybridShard:
      return "HYBRID_SHARD";
    case ShardingStrategy::kHybridShardZero2:
      return "HYBRID_SHARD_ZERO2";
  }
  return "unknown";
}

const char* to_string(StateDictType type) {
  return type == StateDictType::kShardedStateDict ? "SHARDED_STATE_DICT"
                                                  : "FULL_STATE_DICT";
}

namespace parallel {
namespace {

using accel::detail::get_environment;

ShardingStrategy parse_strategy(
    const std::string& variable,
    const std::string& text) {
  const auto name = fsdp_strategy_name(text);
  for (const auto strategy :
       {ShardingStrategy::kFullShard,
        ShardingStrategy::kShardGradOp,
        ShardingStrategy::kNoShard,
        ShardingStrategy::kHybridShard,
        ShardingStrategy::kHybridShardZero2}) {
    if (name == to_string(strategy)) {
      return strategy;
    }
  }
  TORCH_CHECK(
      false,
      "accel: the environment variable ",
      variable,
      ": ",
      no_fsdp_strategy(text),
      ".");
}

void check_settings() {
  for (const auto& setting : fsdp_settings()) {
    std::string variable = "FSDP_";
    for (const char* c = setting.name; *c != '\0'; ++c) {
      variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
    }
    const auto value = get_environment(variable.c_str());
    if (!value) {
      continue;
    }
    const auto why = refuse_fsdp_setting(setting.name, *value);
    TORCH_CHECK(
        why.empty(),
        "accel: the environment variable ",
        variable,
        " is '",
        *value,
        "': ",
        why,
        ".");
  }
}

constexpr int64_t kSecond = 2;

/// 1 or 2.
int64_t version_of(const std::optional<FullyShardedDataParallelPlugin>& given) {
  if (!given || !given->fsdp_version()) {
    // What else it may be is refused with the other settings.
    return get_environment("FSDP_VERSION").value_or("1") == "2" ? kSecond : 1;
  }
  const int64_t version = *given->fsdp_version();
  TORCH_CHECK(
      version == 1 || version == kSecond,
      "accel: fsdp_version is ",
      version,
      "; accel knows 1 and 2.");
  return version;
}

/// FSDP_RESHARD_AFTER_FORWARD says it in version 2: whether weights are gathered
/// once more in backward.
std::optional<ShardingStrategy> strategy_of_environment(int64_t version) {
  constexpr auto kReshard = "FSDP_RESHARD_AFTER_FORWARD";
  if (version == kSecond && get_environment(kReshard)) {
    return accel::detail::get_environment_flag(kReshard).value_or(true)
        ? ShardingStrategy::kFullShard
        : ShardingStrategy::kShardGradOp;
  }
  for (const auto* variable : {"FSDP_SHARDING_STRATEGY", kReshard}) {
    if (const auto text = get_environment(variable)) {
      return parse_strategy(variable, *text);
    }
  }
  return std::nullopt;
}

} // namespace

std::optional<ShardingStrategy> resolve_sharding(
    const std::optional<FullyShardedDataParallelPlugin>& given) {
  const bool wanted = given.has_value() ||
      accel::detail::get_environment_flag("ACCELERATE_USE_FSDP")
          .value_or(false);
  if (!wanted) {
    return std::nullopt;
  }
  check_settings();
  const int64_t version = version_of(given);
  if (given && given->sharding_strategy()) {
    return given->sharding_strategy();
  }
  return strategy_of_environment(version).value_or(ShardingStrategy::kFullShard);
}

StateDictType resolve_state_dict_type(
    const std::optional<FullyShardedDataParallelPlugin>& given) {
  if (given && given->state_dict_type()) {
    return *given->state_dict_type();
  }
  constexpr auto kVariable = "FSDP_STATE_DICT_TYPE";
  const auto text = get_environment(kVariable).value_or(
      version_of(given) == kSecond ? "SHARDED_STATE_DICT" : "FULL_STATE_DICT");
  const auto name = state_dict_type_name(text);
  TORCH_CHECK(
      !name.empty(), "accel: the environment variable ", kVariable, " is '",
      text, "': ", no_state_dict_type(text), ".");
  return name == "SHARDED_STATE_DICT" ? StateDictType::kShardedStateDict
                                      : StateDictType::kFullStateDict;
}

} // namespace parallel
} // namespace accel
