#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "output.h"

namespace accel::launcher {

/// One line of the plan that `accel launch --dry-run` prints.
struct PlanLine {
  std::string what;
  std::string value;
  /// Who said so: an option, "environment NAME", a file, "default".
  std::string source;
};

/// What `accel launch` was asked for. An empty optional means that nobody said
/// anything: what the program or an outer environment says stays valid.
struct LaunchOptions {
  /// Processes on this host.
  int num_processes = 1;
  /// On all hosts, and the rank of the first one here.
  int world_size = 1;
  int first_rank = 0;
  int num_machines = 1;
  int machine_rank = 0;
  /// Where process 0 runs.
  std::string main_process_ip = "127.0.0.1";
  std::optional<std::string> mixed_precision;
  std::optional<int> gradient_accumulation_steps;
  bool cpu = false;
  std::optional<bool> match_single_device;
  std::optional<bool> split_batches;
  /// ACCELERATE_USE_FSDP and FSDP_SHARDING_STRATEGY.
  std::optional<bool> use_fsdp;
  std::optional<std::string> fsdp_sharding_strategy;
  /// FSDP_VERSION.
  std::optional<std::string> fsdp_version;
  /// FSDP_STATE_DICT_TYPE.
  std::optional<std::string> fsdp_state_dict_type;
  /// Other FSDP_… by name.
  std::map<std::string, std::string> fsdp_settings;
  /// ACCELERATE_USE_DEEPSPEED, and ACCELERATE_DEEPSPEED_… by name.
  std::optional<bool> use_deepspeed;
  std::map<std::string, std::string> deepspeed_settings;
  /// ACCELERATE_USE_MEGATRON_LM, and MEGATRON_LM_… by name.
  std::optional<bool> use_megatron_lm;
  std::map<std::string, std::string> megatron_settings;
  /// ACCELERATE_USE_PARALLELISM_CONFIG, PARALLELISM_CONFIG_…_SIZE by name, and how cp
  /// and sp are done, PARALLELISM_CONFIG_CP_… and PARALLELISM_CONFIG_SP_….
  std::optional<bool> use_parallelism_config;
  std::map<std::string, std::string> parallelism_sizes;
  std::map<std::string, std::string> axis_settings;
  /// ACCEL_TP_PLAN.
  std::optional<std::string> tp_plan;
  /// Where process 0 hosts the store, or, with several hosts, where the
  /// launchers meet. Empty or 0: a free one is chosen.
  std::optional<int> main_process_port;
  std::optional<int> num_threads_per_process;
  /// Every process gets cores of its own.
  bool cpu_affinity = false;
  /// CUDA_VISIBLE_DEVICES.
  std::optional<std::string> gpu_ids;
  OutputMode output = OutputMode::kAll;
  /// For OutputMode::kFiles, and with another mode in addition to it.
  std::string output_directory;
  /// Seconds from asking a process to end until it is killed.
  double grace_period = 10;
  /// How often all processes are started again after a failure.
  int max_restarts = 0;
  /// With how many processes the job may go on where some cannot be had any
  /// more; 0: only with all.
  int min_processes = 0;
  /// Seconds to wait for the other hosts, at the start and where one is gone.
  double start_timeout = 300;
  /// ACCEL_PLACEMENT_REPORT; where the environment names a file for it, that.
  bool placement_report = false;
  /// ACCEL_RESUME: "auto" or "never".
  std::optional<std::string> resume;
  /// Says what would be done, and who said so, and does nothing.
  bool dry_run = false;
  std::vector<PlanLine> plan;
  /// The program and its arguments; never empty.
  std::vector<std::string> program;
};

} // namespace accel::launcher
