#pragma once

#include "parallel/deepspeed_settings.h"

#include <cstdlib>
#include <string>
#include <vector>

// Shared with the launcher, which has no LibTorch.

namespace accel::parallel {

namespace megatron {

inline std::string count(const std::string& value) {
  const bool digits = !value.empty() && value.size() < 6 &&
      value.find_first_not_of("0123456789") == std::string::npos;
  return digits && std::atol(value.c_str()) >= 1
      ? ""
      : value + " is not a whole number from 1 to 99999";
}
inline std::string pipelines(const std::string& value) {
  const auto why = count(value);
  return !why.empty() || std::atol(value.c_str()) == 1
      ? why
      : value + ": accel has no pipelines; leave it at 1, and divide layers "
                "(tp_degree) or states (use_distributed_optimizer, or --fsdp "
                "FULL_SHARD)";
}
inline std::string bound(const std::string& value) {
  const auto why = deepspeed::bound(value);
  return why.empty() && value != "auto" ? "" : value + " is no number from 0 (no clipping)";
}
inline std::string flag(const std::string& value) {
  return value == "auto" ? value + " is neither true nor false"
                         : deepspeed::flag(value);
}

} // namespace megatron

/// Accelerate's settings of Megatron-LM: `megatron_lm_…` in `megatron_lm_config`.
inline const std::vector<PluginSetting>& megatron_settings() {
  static const std::vector<PluginSetting> all{
      {"tp_degree", "MEGATRON_LM_TP_DEGREE", "--megatron-lm-tp-degree", "N",
       "For --use-megatron-lm: processes that compute parts of each layer; 1 if not "
       "given. The rest shares out the samples",
       megatron::count},
      {"pp_degree", "MEGATRON_LM_PP_DEGREE", "--megatron-lm-pp-degree", "1",
       "There are no pipelines: 1", megatron::pipelines},
      {"num_micro_batches", "MEGATRON_LM_NUM_MICRO_BATCHES",
       "--megatron-lm-num-micro-batches", "K",
       "For --use-megatron-lm: batches per optimizer step", megatron::count},
      {"gradient_clipping", "MEGATRON_LM_GRADIENT_CLIPPING",
       "--megatron-lm-gradient-clipping", "NORM",
       "For --use-megatron-lm: each step of a prepared optimizer first scales its "
       "gradients down to this norm; not if not given",
       megatron::bound},
      {"sequence_parallelism", "MEGATRON_LM_SEQUENCE_PARALLELISM",
       "--megatron-lm-sequence-parallelism", "BOOL",
       "For --use-megatron-lm: norms, dropout and residuals between the layers are "
       "computed in positions, which the processes that share a layer share out",
       megatron::flag},
      {"recompute_activations", "MEGATRON_LM_RECOMPUTE_ACTIVATIONS",
       "--megatron-lm-recompute-activations", "BOOL",
       "For --use-megatron-lm: what a layer's operators keep for backward is let go after "
       "its forward and computed again in backward; false if not given",
       megatron::flag},
      {"use_distributed_optimizer", "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER",
       "--megatron-lm-use-distributed-optimizer", "BOOL",
       "For --use-megatron-lm: divide weights, gradients and states as SHARD_GRAD_OP "
       "does, between the processes that share out the samples",
       megatron::flag},
  };
  return all;
}

} // namespace accel::parallel
