#pragma once

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
  const auto word = in_lower_case(value);
  for (const char* known : {"true", "false", "1", "0", "yes", "no", "on", "off"}) {
    if (word == known) {
      return "";
    }
  }
  return value + " is neither true nor false";
}

} // namespace fsdp

/// Accelerate's settings of sharded data parallelism that are passed on as they are:
/// `fsdp_…` in `fsdp_config`.
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
       "For --use-fsdp: parameters, gradients and states lie in the host's memory, where "
       "they are on CPUs anyway; an error on GPUs",
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
  };
  return all;
}

/// One of Accelerate's settings of sharded data parallelism that is decided already:
/// `fsdp_…` in a configuration file, `FSDP_…` in the environment.
struct FsdpSetting {
  /// "offload_params".
  const char* name;
  /// The values that say what accel does anyway, in lower case; any other is
  /// refused. Empty: every value is.
  std::vector<std::string> accepted;
  /// What is said about the others.
  const char* instead;
};

/// All that are in no other list, but for the strategy and the files, which are decided
/// elsewhere.
inline const std::vector<FsdpSetting>& fsdp_settings() {
  static const std::vector<std::string> yes{"true", "1", "yes", "on"};
  static const std::vector<std::string> no{"false", "0", "no", "off"};
  static const std::vector<FsdpSetting> all{
      {"version", {"1", "2"}, "accel knows 1 and 2, which differ in the names of options and in what checkpoints are"},
      {"backward_prefetch_policy", {}, "that is the old name of backward_prefetch; say that"},
      {"limit_all_gathers", yes, "accel gathers one unit ahead at most; leave it out"},
      {"use_orig_params", yes, "parameters keep their names and sizes in accel"},
      {"sync_module_states", yes, "all processes begin with process 0's parameters in accel"},
      {"cpu_ram_efficient_loading", no, "every process makes the whole model in accel before it is divided"},
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
