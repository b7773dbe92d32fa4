#pragma once

#include "core/plain_text.h"
#include "parallel/plugin_settings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

// Shared with the launcher, which has no LibTorch.

namespace accel::parallel {

/// A policy's name in any case; empty for one that there is not.
inline std::string auto_wrap_policy_name(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  for (const char* name : {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"}) {
    if (text == name) {
      return name;
    }
  }
  return "";
}

/// The same of what is gathered ahead in backward, also as PyTorch's number.
inline std::string backward_prefetch_name(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  if (text == "1" || text == "2") {
    return text == "1" ? "BACKWARD_PRE" : "BACKWARD_POST";
  }
  for (const char* name : {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"}) {
    if (text == name) {
      return name;
    }
  }
  return "";
}

namespace fsdp {

inline std::string policy(const std::string& value) {
  return auto_wrap_policy_name(value).empty()
      ? value + " is none of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP and NO_WRAP"
      : "";
}
inline std::string names(const std::string& value) {
  return value.find_first_not_of(" ,") == std::string::npos ? "no class is named" : "";
}
/// Also as Python prints it: 100000000.0, 1e8.
inline std::string count(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  return !value.empty() && *end == '\0' && number >= 0 && number <= 1e15 &&
          std::floor(number) == number
      ? ""
      : value + " is not a whole number from 0";
}
inline std::string prefetch(const std::string& value) {
  return backward_prefetch_name(value).empty()
      ? value + " is none of BACKWARD_PRE, BACKWARD_POST and NO_PREFETCH"
      : "";
}
inline std::string flag(const std::string& value) {
  return accel::detail::flag_in(value) ? "" : value + " is neither true nor false";
}

/// Of a setting that accel decides: the value that says what accel does anyway is
/// accepted. `instead`: what is said about the other one.
inline std::string always(bool what, const std::string& value, const char* instead) {
  const auto given = accel::detail::flag_in(value);
  return !given ? flag(value) : *given == what ? "" : value + " cannot be had: " + instead;
}
inline std::string gathers(const std::string& value) {
  return always(true, value, "accel gathers one unit ahead at most; leave it out");
}
inline std::string parameters(const std::string& value) {
  return always(
      true, value, "parameters keep their names and sizes in accel; leave it out");
}
inline std::string states(const std::string& value) {
  return always(
      true, value,
      "all processes begin with process 0's parameters in accel; leave it out");
}
inline std::string activations(const std::string& value) {
  return always(
      false, value,
      "accel does not move activations to host memory; leave it out, or have them "
      "computed again (activation_checkpointing)");
}

} // namespace fsdp

/// Accelerate's settings of sharded data parallelism, but for the strategy, the version
/// and what is saved, which are looked at elsewhere: `fsdp_…` in `fsdp_config`.
inline const std::vector<PluginSetting>& fsdp_plugin_settings() {
  static const std::vector<PluginSetting> all{
      {"auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", "--fsdp-auto-wrap-policy", "POLICY",
       "For --use-fsdp: which modules are gathered in one message: "
       "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP (the whole model); the model's "
       "children if not given",
       fsdp::policy},
      {"transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP",
       "--fsdp-transformer-layer-cls-to-wrap", "NAMES",
       "For TRANSFORMER_BASED_WRAP: classes, as Block,Embeddings; if not given "
       "TransformerEncoderLayer and TransformerDecoderLayer",
       fsdp::names},
      {"min_num_params", "FSDP_MIN_NUM_PARAMS", "--fsdp-min-num-params", "N",
       "For SIZE_BASED_WRAP: a module with as many parameters is a unit; 100000000 if "
       "not given",
       fsdp::count},
      {"offload_params", "FSDP_OFFLOAD_PARAMS", "--fsdp-offload-params", "BOOL",
       "For --use-fsdp: parameters, gradients and states lie in the host's memory, from "
       "where GPUs take what they compute with; on CPUs they do anyway",
       fsdp::flag},
      {"forward_prefetch", "FSDP_FORWARD_PREFETCH", "--fsdp-forward-prefetch", "BOOL",
       "For --use-fsdp: in forward the weights of the next unit are gathered while the "
       "present one computes; if not given where weights travel over Gloo or NCCL",
       fsdp::flag},
      {"backward_prefetch", "FSDP_BACKWARD_PREFETCH", "--fsdp-backward-prefetch", "WHEN",
       "For --use-fsdp: when backward gathers the weights of the next unit: "
       "BACKWARD_PRE, while the present one computes; BACKWARD_POST, while its gradients "
       "are summed; NO_PREFETCH, after that. If not given BACKWARD_PRE where weights "
       "travel over Gloo or NCCL, else NO_PREFETCH",
       fsdp::prefetch},
      {"activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING",
       "--fsdp-activation-checkpointing", "BOOL",
       "For --use-fsdp: what a unit's operators keep for backward is let go after its "
       "forward and computed again in backward; false if not given",
       fsdp::flag},
      {"activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
       "--fsdp-activation-checkpointing-offload", "false",
       "Activations are not moved to host memory: false", fsdp::activations},
      {"limit_all_gathers", "FSDP_LIMIT_ALL_GATHERS", "--fsdp-limit-all-gathers", "true",
       "One unit is gathered ahead at most: true", fsdp::gathers},
      {"use_orig_params", "FSDP_USE_ORIG_PARAMS", "--fsdp-use-orig-params", "true",
       "Parameters keep their names and sizes: true", fsdp::parameters},
      {"sync_module_states", "FSDP_SYNC_MODULE_STATES", "--fsdp-sync-module-states",
       "true", "All processes begin with process 0's parameters: true", fsdp::states},
      {"cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING",
       "--fsdp-cpu-ram-efficient-loading", "BOOL",
       "Of no effect: a model that is built in an accel::ShardedInitGuard is made, and "
       "loaded from files, in parts; any other is made by every process and then divided",
       fsdp::flag},
  };
  return all;
}

/// The name in the table of a key of `fsdp_config`, which may have the prefix, or be one
/// that Accelerate had before.
inline std::string fsdp_setting_name(const std::string& key) {
  const std::string prefix = "fsdp_";
  const auto name = key.rfind(prefix, 0) == 0 ? key.substr(prefix.size()) : key;
  return name == "transformer_cls_to_wrap" ? "transformer_layer_cls_to_wrap"
      : name == "backward_prefetch_policy" ? "backward_prefetch"
      : name == "activation_cpu_offload"   ? "activation_checkpointing_offload"
                                           : name;
}

inline std::string no_fsdp_version(const std::string& text) {
  return text +
      " is neither 1 nor 2, which differ in the names of options and in what "
      "checkpoints are";
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

/// The strategy that `reshard_after_forward` says: version 2's word, whether weights are
/// gathered once more in backward, or version 1's, a strategy. Empty for neither.
inline std::string strategy_of_reshard(const std::string& text) {
  const auto again = accel::detail::flag_in(text);
  return !again ? fsdp_strategy_name(text) : *again ? "FULL_SHARD" : "SHARD_GRAD_OP";
}

inline std::string no_reshard(const std::string& text) {
  return text +
      " is neither true (FULL_SHARD) nor false (SHARD_GRAD_OP), and no strategy";
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
