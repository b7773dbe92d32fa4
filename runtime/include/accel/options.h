#pragma once

#include <accel/export.h>
#include <accel/grad_scaler.h>
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

/// What a program asks for; `ResolvedOptions` is what it gets after the
/// environment has been looked at.
///
///     accel::Accelerator accelerator(
///         accel::AcceleratorOptions().match_single_device(true));
class AcceleratorOptions {
 public:
  /// Several processes compute what one device would have computed: every
  /// batch is split between them, gradients are weighted by samples, batch
  /// norm, dropout and metrics see the global batch. With `false`, work is
  /// shared as Accelerate does it: a batch per process. The environment
  /// variable `ACCEL_MATCH_SINGLE_DEVICE` overrides it.
  TORCH_ARG(bool, match_single_device) = false;

  /// Empty: the environment variable `ACCELERATE_MIXED_PRECISION`, or none.
  TORCH_ARG(std::optional<MixedPrecision>, mixed_precision) = std::nullopt;

  /// Micro-batches per optimizer step. `ACCELERATE_GRADIENT_ACCUMULATION_STEPS`
  /// overrides it.
  TORCH_ARG(int64_t, gradient_accumulation_steps) = 1;

  /// How the gradient scaler of fp16 begins and grows.
  TORCH_ARG(GradScalerOptions, grad_scaler);

  /// Stay on the CPU even where there is a GPU; also `ACCELERATE_USE_CPU`.
  TORCH_ARG(bool, cpu) = false;

  /// Move models to the device of this process (not batches: `send_to_device`).
  TORCH_ARG(bool, device_placement) = true;

  /// (Without `match_single_device`.) The data loader's batch size is the
  /// global one and each batch is split between the processes.
  TORCH_ARG(bool, split_batches) = false;

  /// (Without `match_single_device`.) Every process gets the same number of
  /// equally large batches; the last ones are filled from the beginning.
  TORCH_ARG(bool, even_batches) = true;

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

  /// Folder for trackers; empty: `project_dir`.
  TORCH_ARG(std::string, logging_dir);

  /// How long a process waits for the others, at the start and in each
  /// collective operation, before it gives up with an error.
  TORCH_ARG(std::chrono::milliseconds, timeout) = std::chrono::minutes(30);
};

/// The options that are in force, the same on every process.
struct ResolvedOptions {
  bool match_single_device = false;
  MixedPrecision mixed_precision = MixedPrecision::kNo;
  int64_t gradient_accumulation_steps = 1;
  GradScalerOptions grad_scaler;
  bool cpu = false;
  bool device_placement = true;
  bool split_batches = false;
  bool even_batches = true;
  bool step_scheduler_with_optimizer = true;
  bool sync_with_dataloader = true;
  bool adjust_scheduler = false;
  bool sync_each_batch = false;
  std::chrono::milliseconds timeout{0};

  bool operator==(const ResolvedOptions& other) const;
  bool operator!=(const ResolvedOptions& other) const {
    return !(*this == other);
  }
};

/// "match_single_device=true, mixed_precision=no, …", for messages.
ACCEL_API std::string to_string(const ResolvedOptions& options);

/// Looks at the environment. Throws `c10::Error` where a variable or an option
/// has a value that cannot be honoured.
ACCEL_API ResolvedOptions resolve(const AcceleratorOptions& options);

} // namespace accel
