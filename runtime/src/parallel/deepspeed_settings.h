#pragma once

#include "parallel/plugin_settings.h"

#include <cstdlib>
#include <string>
#include <vector>

// Shared with the launcher, which has no LibTorch.

namespace accel::parallel {

namespace deepspeed {

inline std::string stage(const std::string& value) {
  return value.size() == 1 && value[0] >= '0' && value[0] <= '3'
      ? ""
      : value + " is none of 0, 1, 2 and 3";
}
inline std::string bound(const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  return value == "auto" || (!value.empty() && *end == '\0' && number >= 0)
      ? ""
      : value + " is neither a number from 0 (no clipping) nor auto";
}
inline std::string device(const std::string& value) {
  const auto word = in_lower_case(value);
  return word == "none" || word == "cpu" || word == "nvme"
      ? ""
      : value + " is none of none, cpu and nvme";
}
inline std::string flag(const std::string& value) {
  const auto word = in_lower_case(value);
  for (const char* known : {"true", "false", "1", "0", "yes", "no", "auto"}) {
    if (word == known) {
      return "";
    }
  }
  return value + " is neither true nor false";
}
inline std::string path(const std::string& value) {
  return value.empty() ? "the path is empty" : "";
}
inline std::string starter(const std::string& value) {
  return value == "standard"
      ? ""
      : value +
          ": accel starts the processes of each host itself; write standard, and call "
          "accel launch on each host (--machine-rank)";
}

} // namespace deepspeed

/// Accelerate's settings of DeepSpeed: keys of `deepspeed_config`.
inline const std::vector<PluginSetting>& deepspeed_settings() {
  static const std::vector<PluginSetting> all{
      {"deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE",
       "--deepspeed-config-file", "FILE",
       "For --use-deepspeed: DeepSpeed's own file (JSON), whose keys that accel has a "
       "meaning for count; others are refused by name",
       deepspeed::path},
      {"zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE", "--zero-stage", "STAGE",
       "For --use-deepspeed: 0 divides nothing, 1 and 2 as SHARD_GRAD_OP, 3 as "
       "FULL_SHARD; 2 if not given",
       deepspeed::stage, "/zero_optimization/stage"},
      {"gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING", "--gradient-clipping",
       "NORM",
       "For --use-deepspeed: each step of a prepared optimizer first scales its "
       "gradients down to this norm",
       deepspeed::bound, "/gradient_clipping"},
      {"offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
       "--offload-optimizer-device", "DEVICE",
       "For --use-deepspeed: none, cpu (the host's memory), or nvme (a file): where what "
       "optimizers keep lies between steps",
       deepspeed::device, "/zero_optimization/offload_optimizer/device"},
      {"offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
       "--offload-param-device", "DEVICE",
       "For --use-deepspeed: the same for the parts of parameters; of stage 3",
       deepspeed::device, "/zero_optimization/offload_param/device"},
      {"offload_optimizer_nvme_path",
       "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
       "--offload-optimizer-nvme-path", "FOLDER",
       "For --offload-optimizer-device nvme: the folder of the file",
       deepspeed::path, "/zero_optimization/offload_optimizer/nvme_path"},
      {"offload_param_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
       "--offload-param-nvme-path", "FOLDER",
       "For --offload-param-device nvme: the folder of the file",
       deepspeed::path, "/zero_optimization/offload_param/nvme_path"},
      {"zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT", "--zero3-init-flag",
       "BOOL",
       "For --use-deepspeed: models are built in parts between the Accelerator and "
       "the first prepare, with one device's initial weights; of stage 3",
       deepspeed::flag},
      {"deepspeed_multinode_launcher", "", "--deepspeed-multinode-launcher", "standard",
       "accel launch is called on each host: standard", deepspeed::starter},
      {"zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
       "--zero3-save-16bit-model", "BOOL",
       "Of no effect: save_model always writes the whole model, in the type of its "
       "parameters",
       deepspeed::flag, "/zero_optimization/stage3_gather_16bit_weights_on_model_save"},
  };
  return all;
}

} // namespace accel::parallel
