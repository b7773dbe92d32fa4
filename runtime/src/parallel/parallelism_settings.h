#pragma once

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
  /// What a size above 1 would be where that is not built; otherwise null.
  const char* missing;
};

inline const std::vector<ParallelismSetting>& parallelism_settings() {
  static const std::vector<ParallelismSetting> all{
      {"dp_replicate", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE",
       "--dp-replicate,--parallelism-config-dp-replicate-size",
       "Groups of processes that each hold the whole training state; 1 if not "
       "given (docs/parallelism.md)",
       nullptr},
      {"dp_shard", "PARALLELISM_CONFIG_DP_SHARD_SIZE",
       "--dp-shard,--parallelism-config-dp-shard-size",
       "Processes of a group between which parameters, gradients and optimizer "
       "states are divided; 1 if not given",
       nullptr},
      {"cp", "PARALLELISM_CONFIG_CP_SIZE", "--parallelism-config-cp-size",
       "Context parallelism is not built: 1", "context parallelism"},
      {"sp", "PARALLELISM_CONFIG_SP_SIZE", "--parallelism-config-sp-size",
       "Sequence parallelism is not built: 1", "sequence parallelism"},
      {"tp", "PARALLELISM_CONFIG_TP_SIZE", "--tp,--parallelism-config-tp-size",
       "Processes that compute parts of each layer (--tp-plan); 1 if not given",
       nullptr},
  };
  return all;
}

/// Empty where there may be so many processes along the axis.
inline std::string refuse_parallelism(
    const ParallelismSetting& setting,
    long size) {
  return setting.missing == nullptr || size == 1
      ? ""
      : std::to_string(size) + ": " + setting.missing +
          " is not built; leave it at 1";
}

} // namespace accel::parallel
