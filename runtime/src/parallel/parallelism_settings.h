#pragma once

#include "parallel/plugin_settings.h"

#include <string>
#include <vector>

// Shared with the launcher, which has no LibTorch.

namespace accel::parallel {

/// One axis of Accelerate's `ParallelismConfig`.
struct ParallelismSetting {
  /// "dp_shard", in the mesh's order.
  const char* name;
  /// PARALLELISM_CONFIG_DP_SHARD_SIZE.
  const char* variable;
  /// Options of `accel launch`, the short one first.
  const char* options;
  const char* help;
};

inline const std::vector<ParallelismSetting>& parallelism_settings() {
  static const std::vector<ParallelismSetting> all{
      {"dp_replicate", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE",
       "--dp-replicate,--parallelism-config-dp-replicate-size",
       "Groups of processes that each hold the whole training state; 1 if not "
       "given (docs/parallelism.md)"},
      {"dp_shard", "PARALLELISM_CONFIG_DP_SHARD_SIZE",
       "--dp-shard,--parallelism-config-dp-shard-size",
       "Processes of a group between which parameters, gradients and optimizer "
       "states are divided; 1 if not given"},
      {"cp", "PARALLELISM_CONFIG_CP_SIZE", "--cp,--parallelism-config-cp-size",
       "Processes that share the positions of each sequence; in attention all keys "
       "and values come to each (--cp-comm-strategy); 1 if not given"},
      {"sp", "PARALLELISM_CONFIG_SP_SIZE", "--sp,--parallelism-config-sp-size",
       "Processes that share the positions of each sequence; in attention each "
       "has some of the heads (Ulysses); 1 if not given"},
      {"tp", "PARALLELISM_CONFIG_TP_SIZE", "--tp,--parallelism-config-tp-size",
       "Processes that compute parts of each layer (--tp-plan); 1 if not given"},
  };
  return all;
}

namespace context_parallel {

inline std::string strategy(const std::string& value) {
  return value == "allgather" || value == "alltoall"
      ? ""
      : value + " is neither allgather nor alltoall";
}
inline std::string backend(const std::string& value) {
  return value == "torch" ? "" : value + " is not torch, the only one there is";
}

} // namespace context_parallel

/// How it is done along cp: `parallelism_config_…` in the same list.
inline const std::vector<PluginSetting>& context_parallel_settings() {
  static const std::vector<PluginSetting> all{
      {"cp_comm_strategy", "PARALLELISM_CONFIG_CP_COMM_STRATEGY",
       "--cp-comm-strategy,--parallelism-config-cp-comm-strategy", "WAY",
       "For --cp: how keys and values come to all processes. allgather: they are "
       "gathered, whole on each. alltoall: each passes them on to the next (a ring), "
       "two processes' parts at a time; allgather if not given",
       context_parallel::strategy},
      {"cp_backend", "PARALLELISM_CONFIG_CP_BACKEND",
       "--cp-backend,--parallelism-config-cp-backend", "torch",
       "For --cp: whose way it is: torch, the only one", context_parallel::backend},
  };
  return all;
}

} // namespace accel::parallel
