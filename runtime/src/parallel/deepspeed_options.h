#pragma once

#include <accel/options.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel::parallel {

/// What DeepSpeed's settings mean here.
struct DeepSpeedOptions {
  ShardingStrategy strategy = ShardingStrategy::kNoShard;
  /// Nothing where they do not say.
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<MixedPrecision> mixed_precision;
  /// Those that the file switches off.
  std::vector<MixedPrecision> not_wanted;
  /// 0 for none.
  double gradient_clipping = 0;
  OffloadOptions offload;
  bool zero3_init = false;
  /// Who has said it, as `OptionInForce` names it, for `zero_stage`, `mixed_precision`,
  /// `gradient_accumulation_steps` and `deepspeed_config_file`, where somebody has.
  std::map<std::string, std::string> sources;
};

/// What the argument, the environment and DeepSpeed's file ask for together; nothing
/// where neither of the first two does. Throws `c10::Error` for what cannot be
/// honoured, and where two of them contradict each other.
std::optional<DeepSpeedOptions> resolve_deepspeed(
    const std::optional<DeepSpeedPlugin>& given);

/// "optimizer states in /scratch, parameters in the host's memory", or empty.
std::string to_text(const OffloadOptions& offload);

} // namespace accel::parallel
