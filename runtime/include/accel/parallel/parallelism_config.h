#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>

namespace accel {

/// How keys and values of all positions come to the queries of each process, where
/// `cp_size` shares out positions; Accelerate's `cp_comm_strategy`, PyTorch's rotate
/// method. Results do not depend on it.
enum class CpCommStrategy {
  /// They are gathered: whole on each process while attention is computed.
  kAllgather,
  /// They are passed on from each process to the next until they have been everywhere
  /// (Ring Attention): of two processes at a time. LibTorch's fused attention on CPUs
  /// does so; elsewhere it is as `kAllgather`.
  kAlltoall,
};

/// "allgather" or "alltoall".
ACCEL_API const char* to_string(CpCommStrategy strategy);

/// Context parallelism's settings, Accelerate's class of this name.
class TorchContextParallelConfig {
 public:
  /// Without it what `PARALLELISM_CONFIG_CP_COMM_STRATEGY` says, or `kAllgather`.
  TORCH_ARG(std::optional<CpCommStrategy>, cp_comm_strategy) = std::nullopt;
};

/// How the processes are used, Accelerate's class of this name: a mesh with an
/// axis for each kind of parallelism, in the order dp_replicate, dp_shard, cp, sp,
/// tp; process r stands where r is counted in that order, the last axis first. The
/// product of the sizes must be the number of processes.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions()
///             .match_single_device(true)
///             .parallelism_config(
///                 accel::ParallelismConfig().dp_replicate_size(2).dp_shard_size(2)));
///
/// What is not given is what `PARALLELISM_CONFIG_…_SIZE` says in the environment, or
/// 1. Without an argument `ACCELERATE_USE_PARALLELISM_CONFIG` says whether the
/// environment is looked at. docs/parallelism.md.
class ParallelismConfig {
 public:
  /// Groups of processes that each hold the whole training state, and share the
  /// samples of a batch. Also `PARALLELISM_CONFIG_DP_REPLICATE_SIZE`.
  TORCH_ARG(std::optional<int64_t>, dp_replicate_size) = std::nullopt;

  /// Processes of a group between which parameters, gradients and optimizer states
  /// are divided (`fsdp_plugin`; FULL_SHARD where that says nothing), and which
  /// share the group's samples. Needs `match_single_device`. Also
  /// `PARALLELISM_CONFIG_DP_SHARD_SIZE`.
  TORCH_ARG(std::optional<int64_t>, dp_shard_size) = std::nullopt;

  /// Processes that compute parts of each layer, with the same samples
  /// (`torch_tp_plugin`). Needs `match_single_device`. Also
  /// `PARALLELISM_CONFIG_TP_SIZE`.
  TORCH_ARG(std::optional<int64_t>, tp_size) = std::nullopt;

  /// Context parallelism: processes that share the positions of each sequence, the
  /// first dimension of a batch's tensors that is not the samples'. In attention each
  /// computes its queries with all keys and values, which come to it as `cp_handler`
  /// says. Needs `match_single_device`. Also `PARALLELISM_CONFIG_CP_SIZE`.
  TORCH_ARG(std::optional<int64_t>, cp_size) = std::nullopt;

  /// Of no effect where `cp_size` is 1.
  TORCH_ARG(std::optional<TorchContextParallelConfig>, cp_handler) = std::nullopt;

  /// Sequence parallelism as of DeepSpeed-Ulysses: the same, but in attention each
  /// computes some of the heads over all positions (all-to-all); with fewer heads than
  /// processes attention runs whole. Not together with `cp_size`. Needs
  /// `match_single_device`. Also `PARALLELISM_CONFIG_SP_SIZE`.
  TORCH_ARG(std::optional<int64_t>, sp_size) = std::nullopt;
};

/// The sizes that are in force.
struct ParallelSizes {
  int64_t dp_replicate = 1; ///< see `ParallelismConfig::dp_replicate_size`
  int64_t dp_shard = 1; ///< see `ParallelismConfig::dp_shard_size`
  int64_t cp = 1; ///< see `ParallelismConfig::cp_size`
  int64_t sp = 1; ///< see `ParallelismConfig::sp_size`
  int64_t tp = 1; ///< see `ParallelismConfig::tp_size`

  /// Processes on all axes together.
  int64_t product() const {
    return dp_replicate * dp_shard * cp * sp * tp;
  }
  /// Groups that get samples of their own.
  int64_t data() const {
    return dp_replicate * dp_shard;
  }

  bool operator==(const ParallelSizes& other) const {
    return dp_replicate == other.dp_replicate && dp_shard == other.dp_shard &&
        cp == other.cp && sp == other.sp && tp == other.tp;
  }
  bool operator!=(const ParallelSizes& other) const {
    return !(*this == other);
  }
};

/// "dp_replicate 2, dp_shard 2": those above 1; "1" where none is.
ACCEL_API std::string to_string(const ParallelSizes& sizes);

} // namespace accel
