#include "parallel/fsdp_options.h"

#include "core/environment.h"
#include "core/plain_text.h"
#include "parallel/fsdp_settings.h"

#include <c10/util/Exception.h>

#include <sstream>

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

const char* to_string(AutoWrapPolicy policy) {
  switch (policy) {
    case AutoWrapPolicy::kTransformerBasedWrap:
      return "TRANSFORMER_BASED_WRAP";
    case AutoWrapPolicy::kSizeBasedWrap:
      return "SIZE_BASED_WRAP";
    case AutoWrapPolicy::kNoWrap:
      return "NO_WRAP";
  }
  return "unknown";
}

const char* to_string(BackwardPrefetch prefetch) {
  switch (prefetch) {
    case BackwardPrefetch::kBackwardPre:
      return "BACKWARD_PRE";
    case BackwardPrefetch::kBackwardPost:
      return "BACKWARD_POST";
    case BackwardPrefetch::kNoPrefetch:
      return "NO_PREFETCH";
  }
  return "unknown";
}

std::string to_string(const AutoWrap& wrap) {
  if (!wrap.policy) {
    return "children of the model";
  }
  std::string text = to_string(*wrap.policy);
  if (*wrap.policy == AutoWrapPolicy::kSizeBasedWrap) {
    return text + " from " + std::to_string(wrap.min_num_params) + " parameters";
  }
  for (const auto& name : wrap.class_names) {
    text += (&name == &wrap.class_names.front() ? " of " : ", ") + name;
  }
  return text;
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

void refuse_variable(
    const char* variable, const std::string& value, const std::string& why) {
  TORCH_CHECK(
      why.empty(), "accel: the environment variable ", variable, " is '", value,
      "': ", why, ".");
}

void check_settings() {
  if (const auto version = get_environment("FSDP_VERSION");
      version && *version != "1" && *version != "2") {
    refuse_variable("FSDP_VERSION", *version, no_fsdp_version(*version));
  }
  for (const auto& setting : fsdp_plugin_settings()) {
    if (const auto value = get_environment(setting.variable)) {
      refuse_variable(setting.variable, *value, setting.check(*value));
    }
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

namespace {

std::vector<std::string> names_between_commas(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream rest(text);
  for (std::string name; std::getline(rest, name, ',');) {
    if (name = accel::detail::without_blanks(name); !name.empty()) {
      names.push_back(name);
    }
  }
  return names;
}

AutoWrapPolicy parse_policy(const std::string& text) {
  const auto name = auto_wrap_policy_name(text);
  return name == "NO_WRAP"         ? AutoWrapPolicy::kNoWrap
      : name == "SIZE_BASED_WRAP" ? AutoWrapPolicy::kSizeBasedWrap
                                  : AutoWrapPolicy::kTransformerBasedWrap;
}

/// What only one policy reads must not be given with another.
void check_argument(
    bool given,
    const char* name,
    const std::optional<AutoWrapPolicy>& policy,
    AutoWrapPolicy reader) {
  TORCH_CHECK(
      !given || policy == reader, "accel: fsdp_plugin gives ", name,
      ", which is for auto_wrap_policy ", to_string(reader), ", and that is ",
      policy ? to_string(*policy) : "not given", ".");
}

} // namespace

AutoWrap resolve_auto_wrap(const std::optional<FullyShardedDataParallelPlugin>& given) {
  const auto plugin = given.value_or(FullyShardedDataParallelPlugin());
  AutoWrap wrap;
  wrap.policy = plugin.auto_wrap_policy();
  if (const auto text = get_environment("FSDP_AUTO_WRAP_POLICY"); !wrap.policy && text) {
    wrap.policy = parse_policy(*text);
  }
  check_argument(
      !plugin.transformer_cls_names_to_wrap().empty(), "transformer_cls_names_to_wrap",
      wrap.policy, AutoWrapPolicy::kTransformerBasedWrap);
  check_argument(
      plugin.min_num_params().has_value(), "min_num_params", wrap.policy,
      AutoWrapPolicy::kSizeBasedWrap);
  if (wrap.policy == AutoWrapPolicy::kTransformerBasedWrap) {
    wrap.class_names = plugin.transformer_cls_names_to_wrap();
    if (wrap.class_names.empty()) {
      wrap.class_names = names_between_commas(
          get_environment("FSDP_TRANSFORMER_CLS_TO_WRAP").value_or(""));
    }
  } else if (wrap.policy == AutoWrapPolicy::kSizeBasedWrap) {
    const auto text = get_environment("FSDP_MIN_NUM_PARAMS").value_or("100000000");
    wrap.min_num_params = plugin.min_num_params().value_or(
        static_cast<int64_t>(std::strtod(text.c_str(), nullptr)));
    TORCH_CHECK(
        wrap.min_num_params >= 0, "accel: min_num_params of fsdp_plugin is ",
        wrap.min_num_params, "; it must not be negative.");
  }
  return wrap;
}

bool resolve_cpu_offload(const std::optional<FullyShardedDataParallelPlugin>& given) {
  if (given && given->cpu_offload()) {
    return *given->cpu_offload();
  }
  return accel::detail::get_environment_flag("FSDP_OFFLOAD_PARAMS").value_or(false);
}

std::optional<bool> resolve_forward_prefetch(
    const std::optional<FullyShardedDataParallelPlugin>& given) {
  TORCH_CHECK(
      !given || given->limit_all_gathers(),
      "accel: limit_all_gathers of fsdp_plugin is false, but at most one unit is gathered "
      "ahead. Leave it out.");
  if (given && given->forward_prefetch()) {
    return given->forward_prefetch();
  }
  return accel::detail::get_environment_flag("FSDP_FORWARD_PREFETCH");
}

std::optional<BackwardPrefetch> resolve_backward_prefetch(
    const std::optional<FullyShardedDataParallelPlugin>& given) {
  if (given && given->backward_prefetch()) {
    return given->backward_prefetch();
  }
  const auto text = get_environment("FSDP_BACKWARD_PREFETCH");
  if (!text) {
    return std::nullopt;
  }
  // Anything else was refused with the other settings.
  const auto name = backward_prefetch_name(*text);
  return name == "BACKWARD_PRE"    ? BackwardPrefetch::kBackwardPre
      : name == "BACKWARD_POST" ? BackwardPrefetch::kBackwardPost
                                : BackwardPrefetch::kNoPrefetch;
}

bool resolve_activation_checkpointing(
    const std::optional<FullyShardedDataParallelPlugin>& given) {
  if (given && given->activation_checkpointing()) {
    return *given->activation_checkpointing();
  }
  return accel::detail::get_environment_flag("FSDP_ACTIVATION_CHECKPOINTING")
      .value_or(false);
}

namespace {

MixedPrecisionPolicy policy_of(
    const std::optional<FullyShardedDataParallelPlugin>& plugin) {
  return plugin ? plugin->mixed_precision_policy().value_or(MixedPrecisionPolicy())
                : MixedPrecisionPolicy();
}

} // namespace

MixedPrecision resolve_param_dtype(
    const std::optional<FullyShardedDataParallelPlugin>& plugin,
    MixedPrecision given) {
  const auto policy = policy_of(plugin);
  TORCH_CHECK(
      !policy.output_dtype(), "accel: mixed_precision_policy gives output_dtype ",
      *policy.output_dtype(),
      ", but accel does not take over a module's forward. Leave it out, and convert "
      "what the model returns in the program.");
  TORCH_CHECK(
      !policy.cast_forward_inputs().value_or(false),
      "accel: cast_forward_inputs of mixed_precision_policy is true, but accel does not "
      "take over a module's forward. Leave it out: with param_dtype each operator casts "
      "its inputs (autocast).");
  const auto dtype = policy.param_dtype();
  if (!dtype) {
    return given;
  }
  TORCH_CHECK(
      *dtype == c10::kBFloat16 || *dtype == c10::kHalf,
      "accel: param_dtype of mixed_precision_policy is ", *dtype,
      ", but weights are read in BFloat16, in Half, or in the type of their parameter. "
      "Leave it out, or convert the model.");
  const auto precision =
      *dtype == c10::kHalf ? MixedPrecision::kFP16 : MixedPrecision::kBF16;
  TORCH_CHECK(
      given == MixedPrecision::kNo || given == precision,
      "accel: param_dtype of mixed_precision_policy is ", *dtype,
      ", and mixed_precision ", to_string(given), ". Leave one of them out.");
  return precision;
}

std::optional<c10::ScalarType> resolve_reduce_dtype(
    const std::optional<FullyShardedDataParallelPlugin>& plugin) {
  const auto dtype = policy_of(plugin).reduce_dtype();
  TORCH_CHECK(
      !dtype || *dtype == c10::kBFloat16 || *dtype == c10::kHalf ||
          *dtype == c10::kFloat || *dtype == c10::kDouble,
      "accel: reduce_dtype of mixed_precision_policy is ", *dtype,
      "; gradients are summed in BFloat16, Half, Float or Double.");
  return dtype;
}

} // namespace parallel
} // namespace accel
