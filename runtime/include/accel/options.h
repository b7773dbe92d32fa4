#pragma once

#include <accel/autocast.h>
#include <accel/export.h>
#include <accel/grad_scaler.h>
#include <accel/parallel/deepspeed.h>
#include <accel/parallel/fully_sharded.h>
#include <accel/parallel/megatron_lm.h>
#include <accel/parallel/parallelism_config.h>
#include <accel/parallel/tensor_parallel.h>
#include <accel/tracking/tracker_set.h>

#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel {

/// The precision that forward passes are computed in (`torch::autocast`);
/// parameters and optimizer states stay in float32.
enum class MixedPrecision { kNo, kFP16, kBF16, kFP8 };

/// "no", "fp16", "bf16" or "fp8".
ACCEL_API const char* to_string(MixedPrecision precision);

/// In which precision gradients travel between the processes. Counterpart of
/// Accelerate's `comm_hook` of `DistributedDataParallelKwargs`. (Its PowerSGD is
/// Python code that LibTorch does not have.)
enum class CommHook {
  /// In their own.
  kNo,
  /// Half the bytes of float32; every process's gradient is divided by their
  /// number, rounded, and then summed, as torch's `fp16_compress_hook` and
  /// `bf16_compress_hook` do. Large gradients overflow in fp16.
  kFP16,
  kBF16,
};

/// "no", "fp16" or "bf16".
ACCEL_API const char* to_string(CommHook hook);

/// What a program asks for; `ResolvedOptions` is what it gets after the
/// environment has been looked at.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions().match_single_device(true));
class AcceleratorOptions {
 public:
  /// Several processes compute what one device would have computed: batches are
  /// distributed tensors (accel/distributed/tensor.h), of which each process has
  /// its rows, and losses, batch norm, dropout and metrics are those of the whole
  /// batch. With `false`, work is shared as Accelerate does it: a batch per
  /// process. The environment variable `ACCEL_MATCH_SINGLE_DEVICE` overrides it: a
  /// program must be written for both then. `loss.item()` is that of the whole batch
  /// here, and what it is added up to must not be summed over the processes once more
  /// (`reduce`, `gather`); `gather_for_metrics` is right in both.
  TORCH_ARG(bool, match_single_device) = false;

  /// Empty: the environment variable `ACCELERATE_MIXED_PRECISION`, or none.
  TORCH_ARG(std::optional<MixedPrecision>, mixed_precision) = std::nullopt;

  /// Micro-batches per optimizer step. `ACCELERATE_GRADIENT_ACCUMULATION_STEPS`
  /// overrides it.
  TORCH_ARG(int64_t, gradient_accumulation_steps) = 1;

  /// How the gradient scaler of fp16 begins and grows.
  TORCH_ARG(GradScalerOptions, grad_scaler);

  /// Mixed precision in training steps and where `autocast` is given nothing.
  TORCH_ARG(AutocastOptions, autocast);

  /// How gradients travel. Not with `match_single_device`, where they would not
  /// be those of one device.
  TORCH_ARG(CommHook, comm_hook) = CommHook::kNo;

  /// Gradients are averaged in messages of about this size, in units of 2^20
  /// bytes, each as soon as it is complete.
  TORCH_ARG(double, bucket_cap_mb) = 25;

  /// (Without `match_single_device`.) Buffers, such as running means, become
  /// process 0's after each step that averages gradients.
  TORCH_ARG(bool, broadcast_buffers) = true;

  /// Sharded data parallelism: parameters, gradients and optimizer states are
  /// divided between the processes. Needs `match_single_device`. Empty: the
  /// environment variable `ACCELERATE_USE_FSDP`, or none.
  TORCH_ARG(std::optional<FullyShardedDataParallelPlugin>, fsdp_plugin) =
      std::nullopt;

  /// The same in DeepSpeed's words, with gradient clipping and with states in files.
  /// Not together with `fsdp_plugin`. Empty: the environment variable
  /// `ACCELERATE_USE_DEEPSPEED`, or none.
  TORCH_ARG(std::optional<DeepSpeedPlugin>, deepspeed_plugin) = std::nullopt;

  /// Tensor parallelism, gradient clipping and a divided optimizer in Megatron-LM's
  /// words. Not together with `fsdp_plugin`, `deepspeed_plugin`, or sizes of
  /// `parallelism_config`. Empty: the environment variable
  /// `ACCELERATE_USE_MEGATRON_LM`, or none.
  TORCH_ARG(std::optional<MegatronLMPlugin>, megatron_lm_plugin) = std::nullopt;

  /// What the processes are used for: how many groups of them hold the training
  /// state, and between how many it is divided. Empty: the environment variable
  /// `ACCELERATE_USE_PARALLELISM_CONFIG`, or as `fsdp_plugin` says.
  TORCH_ARG(std::optional<ParallelismConfig>, parallelism_config) = std::nullopt;

  /// Which layers are computed in parts where `tp_size` says so. Empty: a plan made
  /// from the model, or `ACCEL_TP_PLAN`.
  TORCH_ARG(std::optional<TorchTensorParallelPlugin>, torch_tp_plugin) =
      std::nullopt;

  /// Stay on the CPU even where there is a GPU; also `ACCELERATE_USE_CPU`.
  TORCH_ARG(bool, cpu) = false;

  /// Move models to the device of this process (not batches: `send_to_device`).
  TORCH_ARG(bool, device_placement) = true;

  /// The data loader's batch size is the global one, and each batch is split
  /// between the processes. With `false` the global batch of N processes is N
  /// times as large: in `match_single_device` they compute what one device
  /// computes with N times the batch size (loaders of
  /// `accel::data::make_data_loader`; a batch that the program makes itself is as
  /// large as it makes it). Empty: `true` in `match_single_device`, else `false`,
  /// as in Accelerate. The environment variable `ACCEL_SPLIT_BATCHES` overrides
  /// it.
  TORCH_ARG(std::optional<bool>, split_batches) = std::nullopt;

  /// (Without `match_single_device`.) Every process gets the same number of
  /// equally large batches; the last ones are filled from the beginning.
  TORCH_ARG(bool, even_batches) = true;

  /// Process 0 reads the batches and sends each process its part. Empty: for
  /// data sets that decide themselves what comes next (`ChunkDataset`,
  /// `StatefulDataset`, streams), and not where a sampler does.
  TORCH_ARG(std::optional<bool>, dispatch_batches) = std::nullopt;

  /// (With `match_single_device`.) Every process loads whole batches and keeps
  /// its rows, also where the data set loads sample by sample, and no process
  /// loads for others unless `dispatch_batches(true)` says so. For data sets that
  /// draw random numbers which are not LibTorch's (`rand()`, `std::mt19937`), or note
  /// what they gave: all processes then draw and note what one device does.
  TORCH_ARG(bool, load_whole_batches) = false;

  /// What `send_to_device` does where it is not told: copies to a GPU do not
  /// wait (they need pinned memory for that).
  TORCH_ARG(bool, non_blocking) = false;

  /// Schedulers step only when the optimizer did.
  TORCH_ARG(bool, step_scheduler_with_optimizer) = true;

  /// The end of a data loader ends the accumulation window.
  TORCH_ARG(bool, sync_with_dataloader) = true;

  /// Schedulers count the micro-steps that do not step the optimizer.
  TORCH_ARG(bool, adjust_scheduler) = false;

  /// Average gradients on every micro-step, not only at the window's end.
  TORCH_ARG(bool, sync_each_batch) = false;

  /// What records the run once `init_trackers` is called: names of trackers,
  /// "all", or trackers of your own.
  TORCH_ARG(std::vector<LogWith>, log_with);

  /// Folder of what the run leaves behind.
  TORCH_ARG(std::string, project_dir);

  /// `save_state` without a directory saves as the next
  /// `project_dir`/checkpoints/checkpoint_{i}, and `load_state` without one
  /// loads the newest that is complete.
  TORCH_ARG(bool, automatic_checkpoint_naming) = false;

  /// How many checkpoints automatic naming keeps, the newest ones; 0: all.
  TORCH_ARG(int64_t, total_limit) = 0;

  /// The hosts have disks of their own: `save_state`, `save_model` and `save`
  /// write on the first process of each host instead of on process 0 alone. Each
  /// host then has a checkpoint that is complete by itself; loading compares
  /// them. Not for a directory that the hosts share.
  TORCH_ARG(bool, save_on_each_node) = false;

  /// Folder for trackers; empty: `project_dir`.
  TORCH_ARG(std::string, logging_dir);

  /// How long a process waits for the others, at the start and in each
  /// collective operation, before it gives up with an error.
  TORCH_ARG(std::chrono::milliseconds, timeout) = std::chrono::minutes(30);
};

/// The options that are in force, the same on every process.
struct ResolvedOptions {
  /// See `AcceleratorOptions::match_single_device`.
  bool match_single_device = false;
  /// See `AcceleratorOptions::mixed_precision`.
  MixedPrecision mixed_precision = MixedPrecision::kNo;
  /// See `AcceleratorOptions::gradient_accumulation_steps`.
  int64_t gradient_accumulation_steps = 1;
  /// See `AcceleratorOptions::grad_scaler`.
  GradScalerOptions grad_scaler;
  /// See `AcceleratorOptions::autocast`.
  AutocastOptions autocast;
  /// See `AcceleratorOptions::comm_hook`.
  CommHook comm_hook = CommHook::kNo;
  /// See `AcceleratorOptions::bucket_cap_mb`.
  double bucket_cap_mb = 25;
  /// See `AcceleratorOptions::broadcast_buffers`.
  bool broadcast_buffers = true;
  /// Empty without sharded data parallelism.
  std::optional<ShardingStrategy> fsdp;
  /// See `FullyShardedDataParallelPlugin::auto_wrap_policy`.
  AutoWrap auto_wrap;
  /// See `FullyShardedDataParallelPlugin::cpu_offload`.
  bool cpu_offload = false;
  /// See `FullyShardedDataParallelPlugin::forward_prefetch`; empty where nobody says it.
  std::optional<bool> forward_prefetch;
  /// See `FullyShardedDataParallelPlugin::backward_prefetch`; likewise.
  std::optional<BackwardPrefetch> backward_prefetch;
  /// See `FullyShardedDataParallelPlugin::activation_checkpointing`, and
  /// `MegatronLMPlugin::recompute_activations`.
  bool activation_checkpointing = false;
  /// See `MixedPrecisionPolicy::reduce_dtype`.
  std::optional<c10::ScalarType> reduce_dtype;
  /// See `DeepSpeedPlugin::gradient_clipping` and `MegatronLMPlugin`; 0 for none.
  double gradient_clipping = 0;
  /// See `DeepSpeedPlugin::offload_optimizer_device`.
  OffloadOptions offload;
  /// See `DeepSpeedPlugin::zero3_init_flag`.
  bool zero3_init = false;
  /// What `save_state` writes of what is divided.
  StateDictType state_dict_type = StateDictType::kFullStateDict;
  /// See `AcceleratorOptions::parallelism_config`; empty where it was not given.
  std::optional<ParallelSizes> parallelism;
  /// See `TorchContextParallelConfig`.
  CpCommStrategy cp_comm_strategy = CpCommStrategy::kAllgather;
  /// `parallelism` is what `megatron_lm_plugin` says; the processes that it leaves share
  /// out the samples.
  bool fill_mesh = false;
  /// Empty: made from the model.
  TorchTensorParallelPlugin::Plan tp_plan;
  /// See `AcceleratorOptions::cpu`.
  bool cpu = false;
  /// See `AcceleratorOptions::device_placement`.
  bool device_placement = true;
  /// See `AcceleratorOptions::split_batches`.
  bool split_batches = false;
  /// See `AcceleratorOptions::even_batches`.
  bool even_batches = true;
  /// See `AcceleratorOptions::dispatch_batches`.
  std::optional<bool> dispatch_batches;
  /// See `AcceleratorOptions::load_whole_batches`.
  bool load_whole_batches = false;
  /// See `AcceleratorOptions::non_blocking`.
  bool non_blocking = false;
  /// See `AcceleratorOptions::step_scheduler_with_optimizer`.
  bool step_scheduler_with_optimizer = true;
  /// See `AcceleratorOptions::sync_with_dataloader`.
  bool sync_with_dataloader = true;
  /// See `AcceleratorOptions::adjust_scheduler`.
  bool adjust_scheduler = false;
  /// See `AcceleratorOptions::sync_each_batch`.
  bool sync_each_batch = false;
  /// See `AcceleratorOptions::save_on_each_node`.
  bool save_on_each_node = false;
  /// See `AcceleratorOptions::timeout`.
  std::chrono::milliseconds timeout{0};

  bool operator==(const ResolvedOptions& other) const;
  bool operator!=(const ResolvedOptions& other) const {
    return !(*this == other);
  }
};

/// "match_single_device=true, mixed_precision=no, …", for messages.
ACCEL_API std::string to_string(const ResolvedOptions& options);

/// An option, its value, and who has said so.
struct OptionInForce {
  /// The option, such as "mixed_precision".
  std::string name;
  /// Its value as text.
  std::string value;
  /// "default", "argument", "environment" and the variable; or what else has decided it:
  /// "argument" and the plugin, or "deepspeed_config_file" and the file.
  std::string source;
};

/// All options as they are in force, in the order of `AcceleratorOptions`. An
/// option that was given its default counts as not given. Throws as `resolve`
/// does.
ACCEL_API std::vector<OptionInForce> options_in_force(
    const AcceleratorOptions& options);

/// Looks at the environment. Throws `c10::Error` where a variable or an option
/// has a value that cannot be honoured.
ACCEL_API ResolvedOptions resolve(const AcceleratorOptions& options);

} // namespace accel
