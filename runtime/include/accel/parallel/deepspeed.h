#pragma once

#include <accel/export.h>

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>

namespace accel {

/// What of a training's state leaves the memory of the devices that compute.
struct OffloadOptions {
  /// What optimizers keep, and gradients of parameters that lie in parts.
  bool optimizer = false;
  /// The parts of parameters, and their gradients.
  bool parameters = false;
  /// The folder of the file that the optimizers' goes to; empty: the host's memory, where
  /// on CPUs it is anyway.
  std::string optimizer_folder;
  /// The same of the parameters'.
  std::string parameters_folder;

  bool operator==(const OffloadOptions& other) const {
    return optimizer == other.optimizer && parameters == other.parameters &&
        optimizer_folder == other.optimizer_folder &&
        parameters_folder == other.parameters_folder;
  }
};

/// What Accelerate's class of this name asks of DeepSpeed, done by accel's own
/// distributed tensors; DeepSpeed itself is not used. For programs, commands and files
/// that exist already: `FullyShardedDataParallelPlugin` says the same in fewer words.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions()
///             .match_single_device(true)
///             .deepspeed_plugin(accel::DeepSpeedPlugin().zero_stage(3)));
///
/// What is not given is what the environment says (`ACCELERATE_DEEPSPEED_…`). Without an
/// argument `ACCELERATE_USE_DEEPSPEED` says whether. A value in DeepSpeed's file
/// must not contradict one given elsewhere. Not together with `fsdp_plugin`. Needs
/// `match_single_device` with stages above 0. docs/parallelism.md.
class DeepSpeedPlugin {
 public:
  /// The path of DeepSpeed's own file, JSON. Keys that tune its engine
  /// (`reduce_bucket_size`, `overlap_comm` …) have no effect; those that switch
  /// something on that accel does not have (`optimizer`, `compression_training` …), and
  /// batch sizes other than "auto", are errors. Also
  /// `ACCELERATE_DEEPSPEED_CONFIG_FILE`.
  TORCH_ARG(std::optional<std::string>, hf_ds_config) = std::nullopt;

  /// Micro-batches per optimizer step. Must not contradict the Accelerator's option
  /// of this name where that is above 1.
  TORCH_ARG(std::optional<int64_t>, gradient_accumulation_steps) = std::nullopt;

  /// Each step of a prepared optimizer first scales its gradients down to this norm,
  /// the global one, as `clip_grad_norm_` does; 0 for not. Also
  /// `ACCELERATE_GRADIENT_CLIPPING`.
  TORCH_ARG(std::optional<double>, gradient_clipping) = std::nullopt;

  /// 0: nothing is divided; 1 and 2: `ShardingStrategy::kShardGradOp`; 3: `kFullShard`.
  /// Empty: `ACCELERATE_DEEPSPEED_ZERO_STAGE`, or 2. Throws for others.
  TORCH_ARG(std::optional<int64_t>, zero_stage) = std::nullopt;

  /// "none", "cpu" or "nvme": where what optimizers keep lies between steps. Where the
  /// processes compute on CPUs it is in host memory anyway; "nvme" puts it into a
  /// file in `offload_optimizer_nvme_path`, of which the system keeps in memory what
  /// there is room for. On GPUs each step brings it to the GPU for a few parameters at a
  /// time, and computes there: the numbers are those without. Also
  /// `ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE`.
  TORCH_ARG(std::optional<std::string>, offload_optimizer_device) = std::nullopt;

  /// The same for the parts of parameters, of stage 3 only: on GPUs a part is there while
  /// its unit is gathered, or an operator computes with it. Also
  /// `ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE`.
  TORCH_ARG(std::optional<std::string>, offload_param_device) = std::nullopt;

  /// A folder that exists, on a disk with room. Also
  /// `ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH`.
  TORCH_ARG(std::optional<std::string>, offload_optimizer_nvme_path) = std::nullopt;

  /// Likewise. Also `ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH`.
  TORCH_ARG(std::optional<std::string>, offload_param_nvme_path) = std::nullopt;

  /// From the Accelerator to the first `prepare` models are built in parts, as in a
  /// `ShardedInitGuard`. Stage 3 only. Also `ACCELERATE_DEEPSPEED_ZERO3_INIT`; empty:
  /// false, where Accelerate has true.
  TORCH_ARG(std::optional<bool>, zero3_init_flag) = std::nullopt;

  /// Of no effect: `save_model` and `get_state_dict` give the whole model in any case,
  /// in the type of its parameters. Also
  /// `ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL`.
  TORCH_ARG(std::optional<bool>, zero3_save_16bit_model) = std::nullopt;
};

} // namespace accel
