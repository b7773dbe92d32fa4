#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

// Shared with the launcher, which has no LibTorch.

namespace accel::parallel {

/// One of Accelerate's settings of sharded data parallelism: `fsdp_…` in a
/// configuration file, `FSDP_…` in the environment.
struct FsdpSetting {
  /// "offload_params".
  const char* name;
  /// The values that say what accel does anyway, in lower case; any other is
  /// refused. Empty: every value is.
  std::vector<std::string> accepted;
  /// What is said about the others.
  const char* instead;
};

/// All but the strategy and the files, which are decided elsewhere.
inline const std::vector<FsdpSetting>& fsdp_settings() {
  static const std::vector<std::string> yes{"true", "1", "yes", "on"};
  static const std::vector<std::string> no{"false", "0", "no", "off"};
  static const std::vector<FsdpSetting> all{
      {"version", {"1", "2"}, "accel knows 1 and 2, which differ in the names of options and in what checkpoints are"},
      {"offload_params", no, "accel does not move parameters to host memory"},
      {"auto_wrap_policy", {"no_wrap"}, "accel makes the units that it gathers out of the model's children, and they cannot be named; leave it out or say NO_WRAP"},
      {"transformer_cls_to_wrap", {}, "accel makes the units that it gathers out of the model's children, and they cannot be named"},
      {"transformer_layer_cls_to_wrap", {}, "accel makes the units that it gathers out of the model's children, and they cannot be named"},
      {"min_num_params", {"0"}, "accel makes the units that it gathers out of the model's children, and they cannot be named"},
      {"backward_prefetch", {"no_prefetch"}, "accel gathers nothing ahead; leave it out or say NO_PREFETCH"},
      {"backward_prefetch_policy", {"no_prefetch"}, "accel gathers nothing ahead; leave it out or say NO_PREFETCH"},
      {"forward_prefetch", no, "accel gathers nothing ahead"},
      {"use_orig_params", yes, "parameters keep their names and sizes in accel"},
      {"sync_module_states", yes, "all processes begin with process 0's parameters in accel"},
      {"cpu_ram_efficient_loading", no, "every process makes the whole model in accel before it is divided"},
      {"activation_checkpointing", no, "accel does not compute activations again"},
      {"activation_cpu_offload", no, "accel does not move activations to host memory"},
  };
  return all;
}

/// Empty where accel does what the setting says; otherwise why it does not.
inline std::string refuse_fsdp_setting(
    const std::string& name, std::string value) {
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const auto& setting : fsdp_settings()) {
    if (name == setting.name) {
      const bool known =
          std::find(setting.accepted.begin(), setting.accepted.end(), value) !=
          setting.accepted.end();
      return known ? "" : setting.instead;
    }
  }
  return "accel has no such option";
}

/// The name of a strategy that is written in any case or as Accelerate's number;
/// empty for one that accel does not have.
inline std::string fsdp_strategy_name(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  // In the order of their numbers.
  const std::vector<std::string> names{
      "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
      "HYBRID_SHARD_ZERO2"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i] || text == std::to_string(i + 1)) {
      return names[i];
    }
  }
  return "";
}

/// What is said of a text that is none.
inline std::string no_fsdp_strategy(const std::string& text) {
  return text +
      " is none of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD and "
      "HYBRID_SHARD_ZERO2";
}

/// What is saved, in any case or as Accelerate's number; empty for what accel does
/// not have.
inline std::string state_dict_type_name(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  if (text == "FULL_STATE_DICT" || text == "1") {
    return "FULL_STATE_DICT";
  }
  return text == "SHARDED_STATE_DICT" || text == "3" ? "SHARDED_STATE_DICT" : "";
}

inline std::string no_state_dict_type(const std::string& text) {
  return text + " is neither FULL_STATE_DICT nor SHARDED_STATE_DICT";
}

} // namespace accel::parallel
