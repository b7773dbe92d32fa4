#pragma once

#include "core/plain_text.h"
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

namespace sequence_parallel {

inline std::string backend(const std::string& value) {
  return value == "deepspeed"
      ? ""
      : value + " is not deepspeed, Accelerate's only one; leave it out";
}
inline std::string length(const std::string& value) {
  const bool number = !value.empty() && value.size() < 16 &&
      value.find_first_not_of("0123456789") == std::string::npos;
  return number || in_lower_case(value) == "none"
      ? ""
      : value + " is neither a number of positions nor none; leave it out";
}
inline std::string flag(const std::string& value) {
  return accel::detail::flag_in(value) ? "" : value + " is neither true nor false";
}
/// Accelerate's words, and kernels that its hub has.
inline std::string attention(const std::string& value) {
  for (const char* known : {"sdpa", "flash_attention_2", "flash_attention_3"}) {
    if (value == known) {
      return "";
    }
  }
  const bool of_hub = value.find('/') != std::string::npos &&
      value.find("flash-attn") != std::string::npos;
  return of_hub ? ""
                : value +
          " is none of sdpa, flash_attention_2 and flash_attention_3; leave it out";
}

} // namespace sequence_parallel

/// How DeepSpeed would do it along sp, in the same list. None has an effect: sequences
/// may have any length, and attention is LibTorch's.
inline const std::vector<PluginSetting>& sequence_parallel_settings() {
  static const std::vector<PluginSetting> all{
      {"sp_backend", "PARALLELISM_CONFIG_SP_BACKEND",
       "--sp-backend,--parallelism-config-sp-backend", "deepspeed",
       "For --sp: of no effect; deepspeed, Accelerate's only one",
       sequence_parallel::backend},
      {"sp_seq_length", "PARALLELISM_CONFIG_SP_SEQ_LENGTH",
       "--sp-seq-length,--parallelism-config-sp-seq-length", "N",
       "For --sp: of no effect: sequences may have any length",
       sequence_parallel::length},
      {"sp_seq_length_is_variable", "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE",
       "--sp-seq-length-is-variable,--parallelism-config-sp-seq-length-is-variable",
       "BOOL", "For --sp: of no effect: sequences may have any length",
       sequence_parallel::flag},
      {"sp_attn_implementation", "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION",
       "--sp-attn-implementation,--parallelism-config-sp-attn-implementation", "NAME",
       "For --sp: of no effect: attention is LibTorch's", sequence_parallel::attention},
  };
  return all;
}

/// Both: settings of one axis, beside its size.
inline const std::vector<const std::vector<PluginSetting>*>& axis_settings() {
  static const std::vector<const std::vector<PluginSetting>*> all{
      &context_parallel_settings(), &sequence_parallel_settings()};
  return all;
}

} // namespace accel::parallel
