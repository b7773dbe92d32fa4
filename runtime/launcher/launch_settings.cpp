#include "launch_settings.h"

#include "parallel/deepspeed_settings.h"
#include "parallel/fsdp_settings.h"
#include "parallel/megatron_settings.h"
#include "parallel/parallelism_settings.h"
#include "suggestion.h"

namespace accel::launcher {
namespace {

std::string check_output(const std::string& value) {
  if (value == "all" || value == "main" || value == "prefix" ||
      value == "plain" || value.find('/') != std::string::npos) {
    return "";
  }
  return value + " is none of all, main, prefix, plain" +
         suggest(value, {"all", "main", "prefix", "plain"}) +
         "; a folder is written with a slash: " + value + "/";
}

std::string check_strategy(const std::string& value) {
  return parallel::fsdp_strategy_name(value).empty()
             ? parallel::no_fsdp_strategy(value)
             : "";
}

std::string check_reshard(const std::string& value) {
  return parallel::strategy_of_reshard(value).empty() ? parallel::no_reshard(value)
                                                      : "";
}

std::string check_state_dict_type(const std::string& value) {
  return parallel::state_dict_type_name(value).empty()
             ? parallel::no_state_dict_type(value)
             : "";
}

std::string check_folder(const std::string& value) {
  return value.find('/') != std::string::npos
             ? ""
             : "a folder is written with a slash: " + value + "/";
}

} // namespace

std::string check_mesh_size(const std::string& value) {
  return whole_number(1, 4096)(value);
}

void add_launch_settings(Settings& settings) {
  settings.add(
      {"-n,--num-processes",
       "N",
       "Number of processes, on all hosts together; 1 on each if not given",
       whole_number(1, 4096),
       "num_processes",
       ""});
  settings.add(
      {"--nproc-per-node",
       "N",
       "Number of processes on this host",
       whole_number(1, 4096),
       "",
       ""});
  settings.add(
      {"--num-machines,--nnodes",
       "N",
       "Number of hosts, on each of which accel launch is called; 1 if not "
       "given",
       whole_number(1, 4096),
       "num_machines",
       ""});
  settings.add(
      {"--machine-rank,--node-rank",
       "R",
       "Which of the hosts this is, from 0",
       whole_number(0, 4095),
       "machine_rank",
       ""});
  settings.add(
      {"--main-process-ip,--master-addr",
       "HOST",
       "Name or address of host 0, as the others reach it",
       anything(),
       "main_process_ip",
       ""});
  settings.add(
      {"--mixed-precision",
       "TYPE",
       "no, fp16, bf16 or fp8; if not given the program decides",
       one_of({"no", "fp16", "bf16", "fp8"}),
       "mixed_precision",
       "ACCELERATE_MIXED_PRECISION"});
  settings.add(
      {"--gradient-accumulation-steps",
       "K",
       "Batches per optimizer step; if not given the program decides",
       whole_number(1, 1 << 20),
       "gradient_accumulation_steps",
       "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"});
  settings.add(
      {"--cpu",
       "",
       "Use the CPU even where there is a GPU",
       nullptr,
       "use_cpu",
       "ACCELERATE_USE_CPU"});
  settings.add(
      {"--gpu-ids",
       "LIST",
       "The GPUs that may be used, such as 0,2 (CUDA_VISIBLE_DEVICES); all if "
       "not given",
       anything(),
       "gpu_ids",
       "CUDA_VISIBLE_DEVICES"});
  settings.add(
      {"--match-single-device",
       "",
       "Split every batch between the processes, so that the training is that "
       "of one device; overrides the program",
       nullptr,
       "match_single_device",
       "ACCEL_MATCH_SINGLE_DEVICE"});
  settings.add(
      {"--per-process-batch",
       "",
       "Batch sizes are per process, as in Accelerate, so that the global batch "
       "of N processes is N times as large; overrides the program",
       nullptr,
       "",
       ""});
  settings.add(
      {"--use-fsdp",
       "",
       "Divide parameters, gradients and optimizer states between the "
       "processes; overrides nothing that the program says "
       "(docs/parallelism.md)",
       nullptr,
       "use_fsdp",
       "ACCELERATE_USE_FSDP"});
  settings.add(
      {"--fsdp-sharding-strategy",
       "STRATEGY",
       "For --use-fsdp: FULL_SHARD (if not given), SHARD_GRAD_OP, NO_SHARD, "
       "HYBRID_SHARD or HYBRID_SHARD_ZERO2",
       check_strategy,
       "fsdp_sharding_strategy",
       "FSDP_SHARDING_STRATEGY"});
  settings.add(
      {"--fsdp",
       "STRATEGY",
       "--use-fsdp and --fsdp-sharding-strategy in one",
       check_strategy,
       "",
       ""});
  settings.add(
      {"--fsdp-reshard-after-forward",
       "BOOL",
       "For --use-fsdp: the strategy in the words of version 2: true is FULL_SHARD, "
       "false SHARD_GRAD_OP; also a strategy, as in version 1",
       check_reshard,
       "fsdp_reshard_after_forward",
       "FSDP_RESHARD_AFTER_FORWARD"});
  settings.add(
      {"--fsdp-version",
       "1|2",
       "Accelerate's version of FSDP; 1 if not given. With 2 checkpoints are "
       "SHARDED_STATE_DICT if nobody says otherwise",
       one_of({"1", "2"}),
       "fsdp_version",
       "FSDP_VERSION"});
  settings.add(
      {"--fsdp-state-dict-type",
       "TYPE",
       "What checkpoints of divided parameters are: FULL_STATE_DICT (if not "
       "given), whole files, or SHARDED_STATE_DICT (if not given with version "
       "2), a file of each process",
       check_state_dict_type,
       "fsdp_state_dict_type",
       "FSDP_STATE_DICT_TYPE"});
  for (const auto& setting : parallel::fsdp_plugin_settings()) {
    settings.add(
        {setting.option, setting.type, setting.help, setting.check,
         "fsdp_" + std::string(setting.name), setting.variable});
  }
  settings.add(
      {"--use-deepspeed",
       "",
       "Divide as the options of DeepSpeed below say, which accel's own distributed "
       "tensors do (docs/parallelism.md)",
       nullptr,
       "use_deepspeed",
       "ACCELERATE_USE_DEEPSPEED"});
  for (const auto& setting : parallel::deepspeed_settings()) {
    settings.add(
        {setting.option, setting.type, setting.help, setting.check, setting.name,
         setting.variable});
  }
  settings.add(
      {"--use-megatron-lm",
       "",
       "Use the processes as the options of Megatron-LM below say, which accel's own "
       "distributed tensors do (docs/parallelism.md)",
       nullptr,
       "use_megatron_lm",
       "ACCELERATE_USE_MEGATRON_LM"});
  for (const auto& setting : parallel::megatron_settings()) {
    settings.add(
        {setting.option, setting.type, setting.help, setting.check,
         "megatron_lm_" + std::string(setting.name), setting.variable});
  }
  settings.add(
      {"--use-parallelism-config",
       "",
       "Use the processes as the sizes below say; any of them says so, too",
       nullptr,
       "use_parallelism_config",
       "ACCELERATE_USE_PARALLELISM_CONFIG"});
  for (const auto& setting : parallel::parallelism_settings()) {
    settings.add(
        {setting.options,
         "N",
         setting.help,
         check_mesh_size,
         "parallelism_config_" + std::string(setting.name) + "_size",
         setting.variable});
  }
  for (const auto* list : parallel::axis_settings()) {
    for (const auto& setting : *list) {
      settings.add(
          {setting.option, setting.type, setting.help, setting.check,
           "parallelism_config_" + std::string(setting.name), setting.variable});
    }
  }
  settings.add(
      {"--tp-plan",
       "PLAN",
       "For --tp: which modules are cut, as NAME=WORD,NAME=WORD with the words "
       "colwise, rowwise, sequence_parallel and replicate; without a name the model "
       "itself; if not given it is made from the model",
       anything(),
       "tp_plan",
       "ACCEL_TP_PLAN"});
  settings.add(
      {"--main-process-port,--master-port",
       "P",
       "TCP port of process 0's store; if not given or 0 a free one is taken. "
       "With several hosts the port of host 0 at which the launchers meet",
       whole_number(0, 65535),
       "main_process_port",
       ""});
  settings.add(
      {"--num-threads-per-process,--num-cpu-threads-per-process",
       "T",
       "OMP_NUM_THREADS; if neither is given, a fair share of the cores",
       whole_number(1, 1 << 20),
       "num_threads_per_process",
       ""});
  settings.add(
      {"--enable-cpu-affinity",
       "",
       "Give every process cores of its own, a fair share",
       nullptr,
       "enable_cpu_affinity",
       ""});
  settings.add(
      {"--max-restarts",
       "K",
       "After a failure start all processes again, at most K times; 0 if not "
       "given",
       whole_number(0, 1 << 20),
       "max_restarts",
       ""});
  settings.add(
      {"--min-processes",
       "M",
       "After a failure go on with fewer processes, but at least M, where a "
       "host is lost or one process has failed first twice in a row; with all "
       "if not given",
       whole_number(1, 4096),
       "min_processes",
       ""});
  settings.add(
      {"--start-timeout",
       "S",
       "Seconds to wait for the other hosts, also before a restart; 300 if "
       "not given",
       real_number(0, 1e6),
       "start_timeout",
       ""});
  settings.add(
      {"--resume",
       "WHEN",
       "auto: accelerator.resume() in the program goes on at the newest "
       "complete checkpoint, where there is one; never: the program begins "
       "anew, also after a restart (default)",
       one_of({"auto", "never"}),
       "resume",
       "ACCEL_RESUME"});
  settings.add(
      {"--output",
       "HOW",
       "all: what process 0 prints, byte for byte, and whole lines of the "
       "others behind \"[rank] \" (default); main: the same without the "
       "others' standard output; prefix: whole lines of every process behind "
       "\"[rank] \"; plain: whole lines as they are; DIR/: files "
       "DIR/rank-R.stdout.log and DIR/rank-R.stderr.log",
       check_output,
       "output",
       ""});
  settings.add(
      {"--tee",
       "DIR/",
       "Write the files of --output DIR/ in addition to what --output says",
       check_folder,
       "",
       ""});
  settings.add(
      {"--grace-period",
       "S",
       "Seconds between asking a process to end and killing it; 10 if not "
       "given",
       real_number(0, 1e6),
       "grace_period",
       ""});
  settings.add(
      {"--placement-report",
       "",
       "At the end process 0 prints where the time of operators on distributed "
       "tensors went: how much was shared out, and what ran whole, with its "
       "place in the source (ACCEL_PLACEMENT_REPORT)",
       nullptr,
       "placement_report",
       ""});
  settings.add(
      {"--config-file",
       "FILE",
       "What accel config or Accelerate has written; if not given, "
       "$ACCEL_CONFIG_FILE or accel/default_config.yaml in $XDG_CONFIG_HOME "
       "(~/.config), where there is one",
       anything(),
       "",
       ""});
  settings.add(
      {"--dry-run",
       "",
       "Print what would be done and who said so, and do nothing",
       nullptr,
       "",
       ""});
}

} // namespace accel::launcher
