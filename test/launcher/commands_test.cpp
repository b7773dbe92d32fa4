// Configuration files, the plan of a launch, accel env, and what all commands have.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "commands.h"

namespace {

// ---- accel config, and what launch makes of it.

TEST(Config, DefaultIsWrittenAndRead) {
  const Folder folder;
  const Result written = accel(
      {"config", "default", "--mixed_precision", "bf16", "-n", "3"},
      in(folder));
  EXPECT_EQ(written.status, 0) << written.err;
  const std::string path = folder / "accel/default_config.yaml";
  EXPECT_EQ(written.out, "wrote " + path + "\n");
  // As this machine is.
  EXPECT_EQ(
      folder.read("accel/default_config.yaml"),
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: " +
          std::string(
              std::filesystem::is_directory("/proc/driver/nvidia/gpus")
                  ? "MULTI_GPU"
                  : "MULTI_CPU") +
          "\n"
      "mixed_precision: bf16\n"
      "num_processes: 3\n"
      "use_cpu: false\n");

  const Result result = accel(
      launch_probe({"--output", "prefix"}, {"env", "ACCELERATE_MIXED_PRECISION"}),
      in(folder));
  EXPECT_EQ(split_lines(result.out).size(), 3u) << result.err;
  expect_part(result.out, "[2] ACCELERATE_MIXED_PRECISION=bf16");

  // Not a second time, unless asked to.
  EXPECT_EQ(accel({"config", "default"}, in(folder)).status, 2);
  EXPECT_EQ(
      accel({"config", "default", "--overwrite"}, in(folder)).status, 0);
  expect_part(folder.read("accel/default_config.yaml"), "num_processes: 1\n");
  // Without quotes Accelerate would read NO as false.
  expect_part(folder.read("accel/default_config.yaml"), "distributed_type: 'NO'\n");
}

TEST(Config, OfTheUserIsLeftOutWithTheNullDevice) {
  const Folder folder;
  EXPECT_EQ(accel({"config", "default", "-n", "3"}, in(folder)).status, 0);
  const Strings program{"--dry-run", "/bin/true"};
  Strings plain{"launch"};
  Strings without{"launch", "--config-file", "/dev/null"};
  plain.insert(plain.end(), program.begin(), program.end());
  without.insert(without.end(), program.begin(), program.end());
  EXPECT_EQ(
      plan_line(accel(plain, in(folder)).out, "processes"),
      "processes 3 " + folder / "accel/default_config.yaml");
  EXPECT_EQ(
      plan_line(accel(without, in(folder)).out, "processes"),
      "processes 1 default");
}

TEST(Config, AsksUntilTheAnswersMakeSense) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  surroundings.input = "two\n2\nperhaps\nyes\nfp16\n\nsplit\n4\n5\nauto\n\n";
  const Result result =
      accel({"config", "--config-file", "mine.yaml"}, surroundings);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_part(result.out, "two is not a whole number from 1 to 4096");
  expect_part(result.out, "perhaps is neither yes nor no");
  expect_part(result.out, "fp16 is none of no and bf16"); // On the CPU.
  EXPECT_EQ(
      folder.read("mine.yaml"),
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: MULTI_CPU\n"
      "match_single_device: true\n"
      "max_restarts: 5\n"
      "mixed_precision: 'no'\n"
      "num_processes: 2\n"
      "num_threads_per_process: 4\n"
      "resume: auto\n"
      "use_cpu: true\n");
  const Result plan = accel(
      {"launch", "--config-file", "mine.yaml", "--dry-run", "/bin/true"},
      in(folder));
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plan_line(plan.out, "processes"), "processes 2 mine.yaml");
  EXPECT_EQ(plan_line(plan.out, "restarts"), "restarts 5 mine.yaml");
  EXPECT_EQ(plan_line(plan.out, "resume"), "resume auto mine.yaml");
  expect_part(plan.out, "ACCELERATE_MIXED_PRECISION=no\n");
  expect_part(plan.out, "ACCEL_MATCH_SINGLE_DEVICE=1\n");
}

/// What is asked for by answers behind those about the processes is in the file, and
/// accel launch gives it to programs.
TEST(Config, AsksWhatTheProcessesAreUsedFor) {
  const Folder folder;
  const auto asks = [&](const std::string& processes, const std::string& answers,
                        const std::string& text, const std::vector<std::string>& seen) {
    Surroundings surroundings = in(folder);
    surroundings.input = processes + "\nyes\nno\nprogram\nauto\n0\nnever\n" + answers;
    const Result result =
        accel({"config", "--overwrite", "--config-file", "mine.yaml"}, surroundings);
    EXPECT_EQ(result.status, 0) << answers << result.out << result.err;
    expect_part(folder.read("mine.yaml"), text);
    const Result plan = accel(
        {"launch", "--config-file", "mine.yaml", "--dry-run", "/bin/true"}, in(folder));
    EXPECT_EQ(plan.status, 0) << answers << plan.err;
    for (const auto& variable : seen) {
      expect_part(plan.out, variable + "\n");
    }
    return result.out;
  };
  asks("2", "samples\n", "distributed_type: MULTI_CPU\n", {});
  asks(
      "2",
      "fsdp\n1\nSHARD_GRAD_OP\n\nTRANSFORMER_BASED_WRAP\nBlock,Embeddings\n\n\nyes\n",
      "fsdp_config:\n"
      "  fsdp_activation_checkpointing: true\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_offload_params: false\n"
      "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
      "  fsdp_state_dict_type: FULL_STATE_DICT\n"
      "  fsdp_transformer_layer_cls_to_wrap: Block,Embeddings\n"
      "  fsdp_version: 1\n",
      {"ACCELERATE_USE_FSDP=true", "FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP",
       "FSDP_OFFLOAD_PARAMS=false", "FSDP_ACTIVATION_CHECKPOINTING=true",
       "FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP",
       "FSDP_TRANSFORMER_CLS_TO_WRAP=Block,Embeddings"});
  EXPECT_NE(
      folder.read("mine.yaml").find("distributed_type: FSDP\n"), std::string::npos);
  const auto again = asks(
      "2", "fsdps\nfsdp\n2\nno\n\nSIZE\nSIZE_BASED_WRAP\n5000\n\n\n\n",
      "  fsdp_min_num_params: 5000\n  fsdp_offload_params: false\n  fsdp_reshard_after_forward: false\n",
      {"FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP", "FSDP_MIN_NUM_PARAMS=5000",
       "FSDP_VERSION=2", "FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT"});
  expect_part(again, "fsdps is none of samples, fsdp");
  expect_part(again, "SIZE is none of TRANSFORMER_BASED_WRAP");
  const auto ahead = asks(
      "2", "fsdp\n2\nyes\nyes\n\n\nyes\nPRE\nBACKWARD_POST\n\n",
      "  fsdp_activation_checkpointing: false\n"
      "  fsdp_backward_prefetch: BACKWARD_POST\n"
      "  fsdp_forward_prefetch: yes\n"
      "  fsdp_offload_params: true\n",
      {"FSDP_FORWARD_PREFETCH=yes", "FSDP_BACKWARD_PREFETCH=BACKWARD_POST",
       "FSDP_OFFLOAD_PARAMS=true"});
  expect_part(ahead, "PRE is none of BACKWARD_PRE");
  // Enter says nothing of it, and nothing is asked where nothing is gathered.
  asks("2", "fsdp\n1\n\n\n\n\n\n\n\n",
       "fsdp_config:\n"
       "  fsdp_activation_checkpointing: false\n"
       "  fsdp_offload_params: false\n"
       "  fsdp_sharding_strategy: FULL_SHARD\n"
       "  fsdp_state_dict_type: FULL_STATE_DICT\n"
       "  fsdp_version: 1\n",
       {"FSDP_SHARDING_STRATEGY=FULL_SHARD"});
  asks("2", "fsdp\n1\nNO_SHARD\n\n\n\nyes\n", "  fsdp_activation_checkpointing: true\n", {});
  asks(
      "2", "deepspeed\nnone\n3\n2\n0.5\nnvme\n/var/tmp\nnone\nyes\n",
      "deepspeed_config:\n"
      "  gradient_accumulation_steps: 2\n"
      "  gradient_clipping: 0.5\n"
      "  offload_optimizer_device: nvme\n"
      "  offload_optimizer_nvme_path: /var/tmp\n"
      "  offload_param_device: none\n"
      "  zero3_init_flag: true\n"
      "  zero_stage: 3\n",
      {"ACCELERATE_USE_DEEPSPEED=true", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3",
       "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2",
       "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH=/var/tmp"});
  asks(
      "2", "deepspeed\nds.json\n", "deepspeed_config:\n  deepspeed_config_file: ds.json\n",
      {"ACCELERATE_DEEPSPEED_CONFIG_FILE=ds.json"});
  const auto divides = asks(
      "4", "megatron\n3\n2\nyes\n4\n1.5\nyes\nyes\n",
      "megatron_lm_config:\n"
      "  megatron_lm_gradient_clipping: 1.5\n"
      "  megatron_lm_num_micro_batches: 4\n"
      "  megatron_lm_recompute_activations: true\n"
      "  megatron_lm_sequence_parallelism: true\n"
      "  megatron_lm_tp_degree: 2\n"
      "  megatron_lm_use_distributed_optimizer: true\n",
      {"ACCELERATE_USE_MEGATRON_LM=true", "MEGATRON_LM_TP_DEGREE=2",
       "MEGATRON_LM_SEQUENCE_PARALLELISM=true", "MEGATRON_LM_RECOMPUTE_ACTIVATIONS=true"});
  // Without groups there are no positions to share out.
  const auto alone = asks(
      "2", "megatron\n\n\n\n\n\n", "  megatron_lm_recompute_activations: false\n", {});
  EXPECT_EQ(alone.find("positions"), std::string::npos);
  expect_part(divides, "3 does not divide 4 processes");
  asks(
      "8", "mesh\n2\n2\n1\n\nblocks.*.up=colwise\n",
      "parallelism_config:\n"
      "  parallelism_config_dp_replicate_size: 2\n"
      "  parallelism_config_dp_shard_size: 2\n"
      "  parallelism_config_tp_size: 2\n",
      {"ACCELERATE_USE_PARALLELISM_CONFIG=true", "PARALLELISM_CONFIG_TP_SIZE=2",
       "ACCEL_TP_PLAN=blocks.*.up=colwise"});
  // Sequences are shared out in one of two ways, and nothing is left to ask about.
  asks(
      "2", "mesh\n1\n1\n2\nalltoall\n",
      "  parallelism_config_cp_comm_strategy: alltoall\n  parallelism_config_cp_size: 2\n",
      {"PARALLELISM_CONFIG_CP_SIZE=2", "PARALLELISM_CONFIG_CP_COMM_STRATEGY=alltoall"});
}

TEST(Config, WritesNothingWhenTheAnswersEnd) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  surroundings.input = "2\n";
  const Result result = accel({"config"}, surroundings);
  EXPECT_EQ(result.status, 2);
  expect_part(result.err, "the answers ended");
  EXPECT_FALSE(folder.has("accel/default_config.yaml"));
}

// What `accelerate config default` writes on a machine without GPUs, and with.
TEST(Config, ReadsAcceleratesFiles) {
  const Folder folder;
  write(folder / "json.yaml", R"({
  "compute_environment": "LOCAL_MACHINE",
  "debug": false,
  "distributed_type": "MULTI_CPU",
  "downcast_bf16": false,
  "enable_cpu_affinity": false,
  "machine_rank": 0,
  "main_training_function": "main",
  "mixed_precision": "no",
  "num_machines": 1,
  "num_processes": 2,
  "rdzv_backend": "static",
  "same_network": false,
  "tpu_use_cluster": false,
  "tpu_use_sudo": false,
  "use_cpu": true
})");
  write(folder / "questions.yaml", R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: 0,1
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
fsdp_config: {}
)");
  // What is asked about FSDP, of version 2 and 1, and about DeepSpeed, with Enter.
  const std::string rest = R"(
debug: false
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 2
parallelism_config: {}
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";
  write(folder / "fsdp2.yaml", R"(compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: ''
  fsdp_version: 2)" + rest);
  write(folder / "fsdp1.yaml", R"(compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_reshard_after_forward: FULL_SHARD
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: ''
  fsdp_use_orig_params: true
  fsdp_version: 1)" + rest);
  write(folder / "deepspeed.yaml", R"(compute_environment: LOCAL_MACHINE
deepspeed_config:
  gradient_accumulation_steps: 1
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: false
  zero_stage: 2
distributed_type: DEEPSPEED)" + rest);
  write(folder / "megatron.yaml", R"(compute_environment: LOCAL_MACHINE
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_pp_degree: 1
  megatron_lm_recompute_activations: true
  megatron_lm_tp_degree: 1
  megatron_lm_use_distributed_optimizer: true)" + rest);
  for (const char* name :
       {"json.yaml", "questions.yaml", "fsdp2.yaml", "fsdp1.yaml", "deepspeed.yaml",
        "megatron.yaml"}) {
    const Result plan = accel(
        {"launch", "--config-file", name, "--dry-run", "/bin/true"},
        in(folder));
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_EQ(
        plan_line(plan.out, "processes"), std::string("processes 2 ") + name);
  }
  const Result gpus = accel(
      launch_probe(
          {"--config-file", "questions.yaml", "-n", "1"},
          {"env", "CUDA_VISIBLE_DEVICES"}),
      in(folder));
  EXPECT_EQ(gpus.out, "CUDA_VISIBLE_DEVICES=0,1\n") << gpus.err;
}

// What earlier versions of it have written, which it reads to this day.
TEST(Config, ReadsFilesOfEarlierVersionsOfAccelerate) {
  const Folder folder;
  const std::string old = R"(command_file: null
commands: null
compute_environment: LOCAL_MACHINE
deepspeed_config: {}
distributed_type: 'NO'
downcast_bf16: 'no'
dynamo_backend: 'NO'
fsdp_config: {}
ipex_config:
  ipex: false
  use_xpu: false
machine_rank: 0
main_process_ip: null
main_process_port: null
main_training_function: main
megatron_lm_config: {}
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_name: null
tpu_zone: null
use_cpu: false
)";
  const auto precision = [&](const std::string& more) {
    write(folder / "old.yaml", old + more);
    const Result plan = accel(
        {"launch", "--config-file", "old.yaml", "--dry-run", "/bin/true"},
        in(folder));
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_EQ(plan_line(plan.out, "processes"), "processes 1 old.yaml");
    return plan_line(plan.out, "mixed precision");
  };
  EXPECT_EQ(precision("mixed_precision: 'no'\n"), "mixed precision no old.yaml");
  // Before there was mixed_precision.
  EXPECT_EQ(precision("fp16: true\n"), "mixed precision fp16 old.yaml");
  EXPECT_EQ(precision("fp16: false\n").find("old.yaml"), std::string::npos);
  EXPECT_EQ(
      precision("fp16: true\nmixed_precision: bf16\n"),
      "mixed precision bf16 old.yaml");
}

TEST(Config, RefusesWhatItCannotHonour) {
  const Folder folder;
  const auto says = [&](const std::string& text, const std::string& part) {
    write(folder / "a.yaml", text);
    const Result result = accel(
        {"launch", "--config-file", "a.yaml", "/bin/true"}, in(folder));
    EXPECT_EQ(result.status, 2) << text;
    expect_part(result.err, part);
    EXPECT_EQ(split_lines(result.err).size(), 1u) << result.err;
  };
  says("num_proceses: 2\n", "unknown key num_proceses (did you mean num_processes?)");
  says("num_processes: many\n", "a.yaml: num_processes: many is not a whole");
  says("num_processes: -1\n", "num_processes: -1 is not a whole number");
  says("num_processes: [2]\n", "num_processes must be one value");
  says("num_processes: 2\nnum_processes: 3\n", "num_processes is there twice");
  says("mixed_precision: fp61\n", "fp61 is none of no, fp16, bf16 and fp8 (did you mean fp16?)");
  says("use_cpu: perhaps\n", "use_cpu: perhaps is neither yes nor no");
  says("distributed_type: XLA\n", "distributed_type is XLA; accel has NO, MULTI_CPU");
  const std::string fsdp = "distributed_type: FSDP\nfsdp_config:\n  fsdp_";
  says(fsdp + "offload_params: perhaps\n", "fsdp_offload_params: perhaps: perhaps is neither");
  says(fsdp + "backward_prefetch: PRE\n", "PRE is none of BACKWARD_PRE");
  says(fsdp + "limit_all_gathers: false\n", "one unit ahead at most");
  says(fsdp + "auto_wrap_policy: WRAP\n", "WRAP is none of TRANSFORMER_BASED_WRAP");
  says(fsdp + "min_num_params: many\n", "many is not a whole number from 0");
  says(fsdp + "activation_checkpointing: perhaps\n", "perhaps is neither true nor false");
  says(fsdp + "sharding_strategy: HYBRID\n", "HYBRID is none of FULL_SHARD");
  const std::string mesh = "parallelism_config:\n  parallelism_config_";
  says(mesh + "cp_size: 0\n", "parallelism_config_cp_size: 0 is not a whole number");
  says(mesh + "cp_comm_strategy: ring\n", "cp_comm_strategy: ring is neither allgather nor alltoall");
  says(mesh + "sp_backend: ring\n", "parallelism_config_sp_backend: ring is not deepspeed");
  says(mesh + "sp_backends: deepspeed\n", "did you mean parallelism_config_sp_backend?");
  says(fsdp + "use_orig_param: true\n", "did you mean fsdp_use_orig_params?");
  says(fsdp + "reshard_after_forward: perhaps\n", "perhaps is neither true (FULL_SHARD)");
  says(fsdp + "version: 3\n", "3 is neither 1 nor 2");
  says(mesh + "cp_backend: deepspeed\n", "cp_backend: deepspeed is not torch");
  says(mesh + "cp_strategy: ring\n", "did you mean parallelism_config_cp_");
  says(mesh + "dp_shard_size: none\n", "none is not a whole number");
  says(mesh + "dp_shards_size: 2\n", "did you mean parallelism_config_dp_shard_size?");
  says("num_processes: 3\n" + mesh + "dp_shard_size: 2\n", "2 make a mesh of 2 processes, but --num-processes is 3");
  says(fsdp + "state_dict_type: LOCAL_STATE_DICT\n", "LOCAL_STATE_DICT is neither FULL_STATE_DICT nor");
  says(fsdp + "nothing: 1\n", "fsdp_nothing: 1: accel has no such option");
  says(
      "distributed_type: MULTI_CPU\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n",
      "distributed_type is MULTI_CPU");
  says("distributed_type: NO\nnum_processes: 2\n", "distributed_type is NO");
  says("distributed_type: MULTI_GPU\nuse_cpu: true\n", "use_cpu is true");
  says("compute_environment: AMAZON_SAGEMAKER\n", "LOCAL_MACHINE only");
  says("deepspeed_config:\n  zero_stage: 3\n",
       "deepspeed_config gives zero_stage, but distributed_type is not given");
  const std::string zero = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  ";
  says(zero + "zero_stage: 4\n", "deepspeed_config: zero_stage: 4: 4 is none of 0, 1");
  says(zero + "zero_stages: 3\n", "DeepSpeed itself is not used (did you mean zero_stage?)");
  says(zero + "deepspeed_hostfile: hosts\n", "deepspeed_hostfile: hosts: accel has no such option");
  says(zero + "deepspeed_multinode_launcher: pdsh\n", "accel starts the processes of each host itself");
  says("megatron_lm_config:\n  megatron_lm_tp_degree: 2\n",
       "megatron_lm_config gives megatron_lm_tp_degree, but distributed_type is not given");
  const std::string megatron =
      "distributed_type: MEGATRON_LM\nnum_processes: 3\nmegatron_lm_config:\n  megatron_lm_";
  says(megatron + "pp_degree: 2\n", "megatron_lm_pp_degree: 2: 2: accel has no pipelines");
  says(megatron + "sequence_parallelism: maybe\n", "megatron_lm_sequence_parallelism: maybe");
  says(megatron + "recompute_activations: perhaps\n", "perhaps is neither true nor false");
  says(megatron + "tp_degrees: 2\n", "(did you mean megatron_lm_tp_degree?)");
  says(megatron + "tp_degree: 2\n", "tp_degree is 2, which does not divide --num-processes 3");
  says("downcast_bf16: 'yes'\n", "downcast_bf16 asks for");
  says("dynamo_backend: INDUCTOR\n", "dynamo_backend asks for");
  says("ipex_config:\n  ipex: true\n", "ipex_config asks for");
  says("commands:\n- echo hello\n", "commands asks for");
  says("- a\n- b\n", "key: value");
  says("a: [1\n", "this is not YAML");
  const Result missing = accel(
      {"launch", "--config-file", "none.yaml", "/bin/true"}, in(folder));
  EXPECT_EQ(missing.status, 125);
  expect_part(missing.err, "none.yaml");
}

TEST(Config, AFileThatTheEnvironmentNamesMustBeThere) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  surroundings.environment["ACCEL_CONFIG_FILE"] = folder / "gone.yaml";
  const Result result = accel({"launch", "/bin/true"}, surroundings);
  EXPECT_EQ(result.status, 125);
  expect_part(
      result.err,
      "gone.yaml, which the environment variable ACCEL_CONFIG_FILE names: No such "
      "file");
  EXPECT_EQ(split_lines(result.err).size(), 1u) << result.err;
  // accel config writes it.
  EXPECT_EQ(accel({"config", "default"}, surroundings).status, 0);
  EXPECT_EQ(accel({"launch", "/bin/true"}, surroundings).status, 0);
}

TEST(Plan, NamesTheSourceOfEveryValue) {
  const Folder folder;
  write(
      folder / "c.yaml",
      "num_processes: 2\nmixed_precision: bf16\ngrace_period: 3\n"
      "placement_report: true\n"
      "gradient_accumulation_steps: 8\n");
  Surroundings surroundings = in(folder);
  surroundings.environment["ACCEL_CONFIG_FILE"] = folder / "c.yaml";
  surroundings.environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = "4";
  surroundings.environment["OMP_NUM_THREADS"] = "3";
  const Result plan = accel(
      {"launch", "-n", "5", "--dry-run", "--", "/bin/echo", "two words"},
      surroundings);
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(
      plan_line(plan.out, "program"), "program /bin/echo 'two words' /bin/echo");
  EXPECT_EQ(plan_line(plan.out, "processes"), "processes 5 --num-processes");
  EXPECT_EQ(
      plan_line(plan.out, "mixed precision"),
      "mixed precision bf16 " + folder / "c.yaml");
  EXPECT_EQ(
      plan_line(plan.out, "gradient accumulation"),
      "gradient accumulation 4 environment "
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  EXPECT_EQ(
      plan_line(plan.out, "threads per process"),
      "threads per process 3 environment OMP_NUM_THREADS");
  EXPECT_EQ(
      plan_line(plan.out, "grace period"),
      "grace period 3 " + folder / "c.yaml");
  EXPECT_EQ(
      plan_line(plan.out, "placement report"),
      "placement report true " + folder / "c.yaml");
  expect_part(plan.out, "  ACCEL_PLACEMENT_REPORT=1\n");
  surroundings.environment["ACCEL_PLACEMENT_REPORT"] = "r.json";
  const Result named = accel({"launch", "--dry-run", "/bin/true"}, surroundings);
  EXPECT_EQ(
      plan_line(named.out, "placement report"),
      "placement report r.json environment ACCEL_PLACEMENT_REPORT");
  EXPECT_EQ(plan_line(plan.out, "output"), "output all default");
  expect_part(plan.out, "  WORLD_SIZE=5\n");
  expect_part(plan.out, "  MASTER_PORT=(a free one, found at the start)\n");
  // Nothing was started.
  expect_no_part(plan.out, "\ntwo words\n");
}

TEST(Plan, WrongValuesInTheEnvironmentAreNamed) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  surroundings.environment["ACCELERATE_MIXED_PRECISION"] = "half";
  const Result result = accel({"launch", "/bin/true"}, surroundings);
  EXPECT_EQ(result.status, 2);
  expect_part(
      result.err, "environment ACCELERATE_MIXED_PRECISION: half is none of");
}

TEST(Launch, SharesTheCores) {
  const Result result = accel({
      "launch", "-n", "2", "--output", "prefix", "--enable-cpu-affinity", "--",
      "/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status"});
  EXPECT_EQ(result.status, 0) << result.err;
  const Strings lines = split_lines(result.out);
  ASSERT_EQ(lines.size(), 2u);
  const Result all = accel(
      {"launch", "--", "/bin/sh", "-c", "nproc"}, Surroundings());
  if (all.out != "1\n") {
    EXPECT_NE(lines[0].substr(4), lines[1].substr(4));
  }
}

// ---- accel env

TEST(Env, SaysWhatABugReportNeeds) {
  const Folder folder;
  Surroundings surroundings = in(folder);
  surroundings.environment["NCCL_DEBUG"] = "INFO";
  write(folder / "c.yaml", "num_processes: 2\n");
  surroundings.environment["ACCEL_CONFIG_FILE"] = folder / "c.yaml";
  const Result result = accel({"env"}, surroundings);
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"- accel: ", "- LibTorch: 2.", "- programs use GPUs: ", "- kernel: Linux", "- memory: ",
        "- cores that may be used: ", "    num_processes: 2",
        "    NCCL_DEBUG=INFO"}) {
    expect_part(result.out, part);
  }
  expect_no_part(result.out, "unknown");
}

TEST(Command, AllHaveHelpAndAreSuggested) {
  const Result help = accel({"--help"});
  for (const char* name :
       {"launch", "config", "env", "test", "estimate-memory", "merge-weights",
        "flags", "verify"}) {
    expect_part(help.out, std::string("\n  ") + name + " ");
    const Result own = accel({name, "--help"});
    EXPECT_EQ(own.status, 0) << name;
    expect_part(own.out, std::string("Usage: accel ") + name);
    expect_part(own.out, "Example");
  }
  expect_part(
      accel({"estimate-memry"}).err, "did you mean estimate-memory?");
}

} // namespace
