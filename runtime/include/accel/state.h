#pragma once

#include <accel/export.h>
#include <accel/gradient_state.h>
#include <accel/options.h>

#include <c10/core/Device.h>

#include <cstdint>

namespace accel {

/// How the processes of this program work together.
enum class DistributedType {
  /// One process.
  kNo,
  /// Several processes that compute on CPUs.
  kMultiCPU,
  /// Several processes, each with a GPU.
  kMultiGPU,
};

/// "NO", "MULTI_CPU" or "MULTI_GPU", Accelerate's names.
ACCEL_API const char* to_string(DistributedType type);

/// This process among the others. Counterpart of Accelerate's `PartialState`.
class ACCEL_API PartialState {
 public:
  PartialState(
      c10::Device device,
      int64_t process_index,
      int64_t num_processes,
      int64_t local_process_index,
      int64_t local_num_processes);

  /// Where this process computes.
  c10::Device device() const {
    return device_;
  }

  /// How the processes work together.
  DistributedType distributed_type() const;

  /// How many processes there are, on all machines.
  int64_t num_processes() const {
    return num_processes_;
  }

  /// The rank among all processes, from 0.
  int64_t process_index() const {
    return process_index_;
  }

  /// The rank among the processes of this machine, from 0.
  int64_t local_process_index() const {
    return local_process_index_;
  }

  /// How many processes this machine runs.
  int64_t local_num_processes() const {
    return local_num_processes_;
  }

  /// Whether this is process 0.
  bool is_main_process() const {
    return process_index_ == 0;
  }
  /// Whether this is the first process of its machine.
  bool is_local_main_process() const {
    return local_process_index_ == 0;
  }
  /// Whether this is the process with the highest rank.
  bool is_last_process() const {
    return process_index_ == num_processes_ - 1;
  }
  /// Whether there is more than one process.
  bool use_distributed() const {
    return num_processes_ > 1;
  }

  /// Returns when every process has called it.
  void wait_for_everyone() const;

 private:
  c10::Device device_;
  int64_t process_index_;
  int64_t num_processes_;
  int64_t local_process_index_;
  int64_t local_num_processes_;
};

/// `PartialState` and the options that all parts of the runtime look at. There
/// is one for each program, made by its first `Accelerator`.
class ACCEL_API AcceleratorState : public PartialState {
 public:
  AcceleratorState(PartialState process, ResolvedOptions options)
      : PartialState(process), options_(options) {}

  /// The options that are in force.
  const ResolvedOptions& options() const {
    return options_;
  }
  /// The option of that name.
  MixedPrecision mixed_precision() const {
    return options_.mixed_precision;
  }
  /// The option of that name.
  bool match_single_device() const {
    return options_.match_single_device;
  }

 private:
  ResolvedOptions options_;
};

} // namespace accel
