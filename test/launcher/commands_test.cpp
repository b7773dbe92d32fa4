// The smaller commands, configuration files, and the plan of a launch.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness.h"

namespace {

using Strings = std::vector<std::string>;

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Surroundings in(const Folder& folder) {
  Surroundings surroundings;
  surroundings.cwd = folder.path();
  surroundings.environment = {
      {"XDG_CONFIG_HOME", folder.path()},
      {"OMP_NUM_THREADS", ""},
      {"ACCELERATE_MIXED_PRECISION", ""},
      {"CUDA_VISIBLE_DEVICES", ""}};
  return surroundings;
}

void expect_no_part(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << part << " in:\n" << text;
}

/// The line of a plan that begins with `what`, its columns with one space
/// between them.
std::string plan_line(const std::string& plan, const std::string& what) {
  for (const std::string& line : split_lines(plan)) {
    if (line.rfind(what + "  ", 0) == 0) {
      std::string result;
      for (char c : line) {
        if (c != ' ' || result.back() != ' ') {
          result += c;
        }
      }
      return result;
    }
  }
  return "no line " + what + " in:\n" + plan;
}

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
      "2", "fsdp\n1\nSHARD_GRAD_OP\nTRANSFORMER_BASED_WRAP\nBlock,Embeddings\n\n",
      "fsdp_config:\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
      "  fsdp_state_dict_type: FULL_STATE_DICT\n"
      "  fsdp_transformer_layer_cls_to_wrap: Block,Embeddings\n"
      "  fsdp_version: 1\n",
      {"ACCELERATE_USE_FSDP=true", "FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP",
       "FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP",
       "FSDP_TRANSFORMER_CLS_TO_WRAP=Block,Embeddings"});
  EXPECT_NE(
      folder.read("mine.yaml").find("distributed_type: FSDP\n"), std::string::npos);
  const auto again = asks(
      "2", "fsdps\nfsdp\n2\nno\nSIZE\nSIZE_BASED_WRAP\n5000\n\n",
      "  fsdp_min_num_params: 5000\n  fsdp_reshard_after_forward: false\n",
      {"FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP", "FSDP_MIN_NUM_PARAMS=5000",
       "FSDP_VERSION=2", "FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT"});
  expect_part(again, "fsdps is none of samples, fsdp");
  expect_part(again, "SIZE is none of TRANSFORMER_BASED_WRAP");
  asks(
      "2", "deepspeed\nnone\n3\n0.5\nnvme\n/var/tmp\nnone\nyes\n",
      "deepspeed_config:\n"
      "  gradient_clipping: 0.5\n"
      "  offload_optimizer_device: nvme\n"
      "  offload_optimizer_nvme_path: /var/tmp\n"
      "  offload_param_device: none\n"
      "  zero3_init_flag: true\n"
      "  zero_stage: 3\n",
      {"ACCELERATE_USE_DEEPSPEED=true", "ACCELERATE_DEEPSPEED_ZERO_STAGE=3",
       "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH=/var/tmp"});
  asks(
      "2", "deepspeed\nds.json\n", "deepspeed_config:\n  deepspeed_config_file: ds.json\n",
      {"ACCELERATE_DEEPSPEED_CONFIG_FILE=ds.json"});
  const auto divides = asks(
      "4", "megatron\n3\n2\n4\n1.5\nyes\n",
      "megatron_lm_config:\n"
      "  megatron_lm_gradient_clipping: 1.5\n"
      "  megatron_lm_num_micro_batches: 4\n"
      "  megatron_lm_tp_degree: 2\n"
      "  megatron_lm_use_distributed_optimizer: true\n",
      {"ACCELERATE_USE_MEGATRON_LM=true", "MEGATRON_LM_TP_DEGREE=2"});
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
      "2", "mesh\n1\n1\n2\n", "  parallelism_config_cp_size: 2\n",
      {"PARALLELISM_CONFIG_CP_SIZE=2"});
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
  for (const char* name : {"json.yaml", "questions.yaml"}) {
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
  says(fsdp + "auto_wrap_policy: WRAP\n", "WRAP is none of TRANSFORMER_BASED_WRAP");
  says(fsdp + "min_num_params: many\n", "many is not a whole number from 0");
  says(fsdp + "activation_checkpointing: true\n", "does not compute activations again");
  says(fsdp + "sharding_strategy: HYBRID\n", "HYBRID is none of FULL_SHARD");
  const std::string mesh = "parallelism_config:\n  parallelism_config_";
  says(mesh + "cp_size: 0\n", "parallelism_config_cp_size: 0 is not a whole number");
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
  says(megatron + "sequence_parallelism: true\n", "sp_size of parallelism_config (--sp)");
  says(megatron + "recompute_activations: true\n", "accel::checkpoint_activations");
  says(megatron + "tp_degrees: 2\n", "(did you mean megatron_lm_tp_degree?)");
  says(megatron + "tp_degree: 2\n", "tp_degree is 2, which does not divide --num-processes 3");
  says("downcast_bf16: 'yes'\n", "downcast_bf16 asks for");
  says("- a\n- b\n", "key: value");
  says("a: [1\n", "this is not YAML");
  const Result missing = accel(
      {"launch", "--config-file", "none.yaml", "/bin/true"}, in(folder));
  EXPECT_EQ(missing.status, 125);
  expect_part(missing.err, "none.yaml");
}

TEST(Fsdp, IsAskedForByOptionsAndFiles) {
  const Folder folder;
  const std::vector<std::string> variables{"env", "ACCELERATE_USE_FSDP"};
  const auto seen = [&](const std::vector<std::string>& options) {
    std::string all;
    for (const char* name : {"ACCELERATE_USE_FSDP", "FSDP_SHARDING_STRATEGY"}) {
      const Result result =
          accel(launch_probe(options, {"env", name}), in(folder));
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out;
    }
    return all;
  };
  EXPECT_EQ(
      seen({"--fsdp", "shard_grad_op"}),
      "ACCELERATE_USE_FSDP=true\nFSDP_SHARDING_STRATEGY=SHARD_GRAD_OP\n");
  EXPECT_EQ(
      seen({"--use_fsdp", "--fsdp_sharding_strategy", "1"}),
      "ACCELERATE_USE_FSDP=true\nFSDP_SHARDING_STRATEGY=FULL_SHARD\n");
  write(
      folder / "fsdp.yaml",
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: false\n  fsdp_offload_params: false\n");
  EXPECT_EQ(
      seen({"--config-file", "fsdp.yaml"}),
      "ACCELERATE_USE_FSDP=true\nFSDP_SHARDING_STRATEGY=SHARD_GRAD_OP\n");
  write(
      folder / "files.yaml",
      "distributed_type: FSDP\nfsdp_config:\n"
      "  fsdp_state_dict_type: SHARDED_STATE_DICT\n");
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--config-file", "files.yaml"},
        {"--fsdp", "FULL_SHARD", "--fsdp_state_dict_type", "sharded_state_dict"},
        {"--tp", "1", "--fsdp-state-dict-type", "3"}}) {
    const Result result = accel(
        launch_probe(options, {"env", "FSDP_STATE_DICT_TYPE"}), in(folder));
    EXPECT_EQ(result.out, "FSDP_STATE_DICT_TYPE=SHARDED_STATE_DICT\n") << result.err;
  }
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--config-file", "fsdp.yaml"},
        {"--fsdp", "FULL_SHARD", "--fsdp-version", "2"}}) {
    const Result result =
        accel(launch_probe(options, {"env", "FSDP_VERSION"}), in(folder));
    EXPECT_EQ(result.out, "FSDP_VERSION=2\n") << result.err;
  }
  write(
      folder / "units.yaml",
      "distributed_type: FSDP\nfsdp_config:\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_transformer_layer_cls_to_wrap: Block,Embeddings\n"
      "  fsdp_min_num_params: ''\n  fsdp_offload_params: true\n");
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--config-file", "units.yaml"},
        {"--fsdp", "FULL_SHARD", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP",
         "--fsdp_transformer_layer_cls_to_wrap", "Block,Embeddings",
         "--fsdp-offload-params", "true"}}) {
    for (const std::string& variable :
         {"FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP",
          "FSDP_TRANSFORMER_CLS_TO_WRAP=Block,Embeddings", "FSDP_OFFLOAD_PARAMS=true"}) {
      const Result result = accel(
          launch_probe(options, {"env", variable.substr(0, variable.find('='))}),
          in(folder));
      EXPECT_EQ(result.out, variable + "\n") << result.err;
    }
  }
  const auto says = [&](const std::vector<std::string>& options,
                        const std::string& part) {
    const Result result = accel(launch_probe(options, variables), in(folder));
    EXPECT_EQ(result.status, 2);
    expect_part(result.err, part);
  };
  says({"--fsdp-auto-wrap-policy", "NO_WRAP"}, "is for --use-fsdp");
  says(
      {"--fsdp", "FULL_SHARD", "--fsdp-min-num-params", "100"},
      "--fsdp-min-num-params 100 is for --fsdp-auto-wrap-policy SIZE_BASED_WRAP");
  says({"--fsdp", "FULL"}, "FULL is none of FULL_SHARD");
  says({"--fsdp-version", "3"}, "3");
  says({"--fsdp-sharding-strategy", "NO_SHARD"}, "is for --use-fsdp");
  says({"--fsdp-state-dict-type", "PARTS"}, "PARTS is neither FULL_STATE_DICT nor");
  says(
      {"--fsdp", "NO_SHARD", "--fsdp-sharding-strategy", "FULL_SHARD"},
      "give one of them");
}

TEST(DeepSpeedSettings, AreAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = [&](std::vector<std::string> options) {
    std::string all;
    options.insert(options.end(), {"-n", "2", "--output", "main"});
    for (const char* name :
         {"ACCELERATE_USE_DEEPSPEED", "ACCELERATE_DEEPSPEED_ZERO_STAGE",
          "ACCELERATE_GRADIENT_CLIPPING", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
          "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"}) {
      const Result result =
          accel(launch_probe(options, {"env", name}), in(folder));
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out;
    }
    return all;
  };
  const std::string expected =
      "ACCELERATE_USE_DEEPSPEED=true\nACCELERATE_DEEPSPEED_ZERO_STAGE=3\n"
      "ACCELERATE_GRADIENT_CLIPPING=0.5\n"
      "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE=cpu\n"
      "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2\n";
  EXPECT_EQ(
      seen({"--use-deepspeed", "--zero_stage", "3", "--gradient-clipping", "0.5",
            "--offload-param-device", "cpu", "--gradient-accumulation-steps", "2"}),
      expected);
  write(
      folder / "ds.yaml",
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
      "  gradient_clipping: 0.5\n  offload_param_device: cpu\n"
      "  gradient_accumulation_steps: 2\n  deepspeed_multinode_launcher: standard\n"
      "  offload_param_nvme_path: none\n");
  EXPECT_EQ(seen({"--config-file", "ds.yaml"}), expected);
  const auto says = [&](const std::vector<std::string>& options,
                        const std::string& part) {
    const Result result = accel(launch_probe(options, {"env", "RANK"}), in(folder));
    EXPECT_EQ(result.status, 2);
    expect_part(result.err, part);
  };
  says({"--zero-stage", "3"}, "--zero-stage 3 is for --use-deepspeed");
  says({"--use-deepspeed", "--fsdp", "FULL_SHARD"}, "both say how parameters are divided");
  says({"--use-deepspeed", "--zero-stage", "7"}, "7 is none of 0, 1, 2 and 3");
}

TEST(MegatronSettings, AreAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = [&](std::vector<std::string> options) {
    std::string all;
    options.insert(options.end(), {"-n", "2", "--output", "main"});
    for (const char* name :
         {"ACCELERATE_USE_MEGATRON_LM", "MEGATRON_LM_TP_DEGREE",
          "MEGATRON_LM_GRADIENT_CLIPPING", "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER"}) {
      const Result result =
          accel(launch_probe(options, {"env", name}), in(folder));
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out;
    }
    return all;
  };
  const std::string expected =
      "ACCELERATE_USE_MEGATRON_LM=true\nMEGATRON_LM_TP_DEGREE=2\n"
      "MEGATRON_LM_GRADIENT_CLIPPING=0.5\nMEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER=true\n";
  EXPECT_EQ(
      seen({"--use_megatron_lm", "--megatron_lm_tp_degree", "2",
            "--megatron-lm-gradient-clipping", "0.5", "--megatron-lm-pp-degree", "1",
            "--megatron_lm_use_distributed_optimizer", "true"}),
      expected);
  write(
      folder / "megatron.yaml",
      "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
      "  megatron_lm_pp_degree: 1\n  megatron_lm_gradient_clipping: 0.5\n"
      "  megatron_lm_sequence_parallelism: false\n"
      "  megatron_lm_use_distributed_optimizer: true\n");
  EXPECT_EQ(seen({"--config-file", "megatron.yaml"}), expected);
  const auto says = [&](std::vector<std::string> options, const std::string& part) {
    options.insert(options.end(), {"-n", "2"});
    const Result result = accel(launch_probe(options, {"env", "RANK"}), in(folder));
    EXPECT_EQ(result.status, 2);
    expect_part(result.err, part);
  };
  says({"--megatron-lm-tp-degree", "2"}, "is for --use-megatron-lm");
  says({"--use-megatron-lm", "--megatron-lm-pp-degree", "2"}, "accel has no pipelines");
  says({"--use-megatron-lm", "--tp", "2"}, "both say what the processes are used for");
  says({"--use-megatron-lm", "--fsdp", "FULL_SHARD"}, "both say what the processes are used for");
}

TEST(Parallelism, IsAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = [&](std::vector<std::string> options) {
    std::string all;
    options.insert(options.end(), {"--output", "main"});
    for (const char* name :
         {"ACCELERATE_USE_PARALLELISM_CONFIG",
          "PARALLELISM_CONFIG_DP_REPLICATE_SIZE",
          "PARALLELISM_CONFIG_DP_SHARD_SIZE"}) {
      const Result result =
          accel(launch_probe(options, {"env", name}), in(folder));
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out;
    }
    return all;
  };
  const std::string expected =
      "ACCELERATE_USE_PARALLELISM_CONFIG=true\n"
      "PARALLELISM_CONFIG_DP_REPLICATE_SIZE=2\n"
      "PARALLELISM_CONFIG_DP_SHARD_SIZE=1\n";
  EXPECT_EQ(seen({"-n", "2", "--dp-replicate", "2", "--dp-shard", "1"}), expected);
  EXPECT_EQ(
      seen({"-n", "2", "--use_parallelism_config",
            "--parallelism_config_dp_replicate_size", "2",
            "--parallelism_config_dp_shard_size", "1"}),
      expected);
  write(
      folder / "mesh.yaml",
      "num_processes: 2\nparallelism_config:\n"
      "  parallelism_config_dp_replicate_size: 2\n"
      "  parallelism_config_dp_shard_size: 1\n"
      "  parallelism_config_cp_size: 1\n  parallelism_config_cp_backend: torch\n");
  EXPECT_EQ(seen({"--config-file", "mesh.yaml"}), expected);
  const auto says = [&](const std::vector<std::string>& options,
                        const std::string& part) {
    const Result result = accel(launch_probe(options, {"env", "RANK"}), in(folder));
    EXPECT_EQ(result.status, 2);
    expect_part(result.err, part);
  };
  says({"-n", "4", "--dp-shard", "2"},
       "--dp-shard 2 make a mesh of 2 processes, but --num-processes is 4");
  says({"-n", "2", "--use-parallelism-config"}, "no sizes make a mesh of 1");
  says({"-n", "2", "--tp-plan", "up=colwise"}, "--tp-plan is for --tp");
  const Result parts = accel(
      launch_probe({"-n", "2", "--tp", "2", "--tp-plan", "up=colwise", "--output", "main"},
                   {"env", "ACCEL_TP_PLAN"}),
      in(folder));
  EXPECT_EQ(parts.out, "ACCEL_TP_PLAN=up=colwise\n") << parts.err;
  says({"-n", "4", "--cp", "2", "--sp", "2"},
       "--cp 2, --sp 2: cp and sp share the positions of a sequence in two ways");
  const Result positions = accel(
      launch_probe({"-n", "2", "--cp", "2", "--output", "main"},
                   {"env", "PARALLELISM_CONFIG_CP_SIZE"}),
      in(folder));
  EXPECT_EQ(positions.out, "PARALLELISM_CONFIG_CP_SIZE=2\n") << positions.err;
  says({"-n", "2", "--dp-shard", "2", "--min-processes", "1"},
       "cannot go on with fewer");
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

// ---- Files of models.

std::string safetensors(const std::string& header, const std::string& data) {
  std::string padded = header;
  padded.resize((padded.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  const uint64_t size = padded.size();
  std::memcpy(length.data(), &size, 8);
  return length + padded + data;
}

/// Two shards: a.weight (F32, 2x2) and a.steps (I64); b.half (F16, 3).
void write_shards(const Folder& folder) {
  write(
      folder / "model-00001-of-00002.safetensors",
      safetensors(
          R"({"__metadata__":{"format":"pt"},"a.steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]}})",
          "STEPSTEP0123456789abcdef"));
  write(
      folder / "model-00002-of-00002.safetensors",
      safetensors(
          R"({"__metadata__":{"format":"pt"},"b.half":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})",
          "halfha"));
  write(
      folder / "model.safetensors.index.json",
      R"({"metadata":{"total_size":30},"weight_map":{
        "a.steps":"model-00001-of-00002.safetensors",
        "a.weight":"model-00001-of-00002.safetensors",
        "b.half":"model-00002-of-00002.safetensors"}})");
}

TEST(MergeWeights, CopiesEveryByteInPythonsOrder) {
  const Folder folder;
  write_shards(folder);
  const Result result =
      accel({"merge-weights", ".", "out", "--overwrite"}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(
      folder.read("out/model.safetensors"),
      safetensors(
          R"({"__metadata__":{"format":"pt"},"a.steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},"b.half":{"dtype":"F16","shape":[3],"data_offsets":[24,30]}})",
          "STEPSTEP0123456789abcdefhalfha"));
  // Not over what is there, unless asked to; and never over a shard.
  EXPECT_EQ(accel({"merge-weights", ".", "out"}, in(folder)).status, 2);
  EXPECT_EQ(
      accel(
          {"merge-weights",
           "--overwrite",
           ".",
           "model-00001-of-00002.safetensors"},
          in(folder))
          .status,
      2);
}

TEST(MergeWeights, RefusesDamagedFiles) {
  const auto says = [](const std::string& name,
                       const std::function<void(std::string&)>& damage,
                       const std::string& part) {
    const Folder folder;
    write_shards(folder);
    std::string bytes = folder.read(name);
    damage(bytes);
    write(folder / name, bytes);
    const Result result = accel({"merge-weights", ".", "out"}, in(folder));
    EXPECT_EQ(result.status, 125) << part;
    expect_part(result.err, part);
    EXPECT_FALSE(folder.has("out/model.safetensors"));
  };
  const std::string first = "model-00001-of-00002.safetensors";
  says(first, [](std::string& b) { b.resize(b.size() - 1); }, "bytes instead of");
  says(first, [](std::string& b) { b += "x"; }, "bytes instead of");
  says(first, [](std::string& b) { b.resize(5); }, "fewer than 8 bytes");
  says(first, [](std::string& b) { b[5] = 1; }, "its header would have");
  says(first, [](std::string& b) { b[8] = '['; }, "its header");
  says(
      first,
      [](std::string& b) { b.replace(b.find("F32"), 3, "F31"); },
      "unknown dtype F31");
  says(
      first,
      [](std::string& b) { b.replace(b.find("[2,2]"), 5, "[2,3]"); },
      "not what its shape and dtype need");
  says(
      first,
      [](std::string& b) { b.replace(b.find("a.weight"), 8, "a.weighs"); },
      "do not belong together");
  says(
      "model.safetensors.index.json",
      [](std::string& b) { b.resize(40); },
      "is damaged");
  says(
      "model.safetensors.index.json",
      [](std::string& b) {
        b.replace(b.find("model-00002"), 11, "../../x0002");
      },
      "no file beside it");
}

/// What three processes have of a tensor of 3 x 4 bytes: a row, and two rows cut
/// between the columns; process 0 also has what is not divided.
void write_processes(const Folder& folder) {
  const auto file = [&](const char* rank, const std::string& boxes,
                        const std::string& tensors, const std::string& bytes) {
    write(
        folder / (std::string("model.process_") + rank + ".safetensors"),
        safetensors(
            R"({"__metadata__":{"accel.pieces":")" + boxes +
                R"(","format":"pt"},)" + tensors + "}",
            bytes));
  };
  file("0", R"({\"w\":[[3,4],[0,0]]})",
       R"("steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[1,4],"data_offsets":[8,12]})",
       "STEPSTEP0123");
  file("1", R"({\"w\":[[3,4],[1,0]]})",
       R"("w":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]})", "456abc");
  file("10", R"({\"w\":[[3,4],[1,3]]})",
       R"("w":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]})", "7d");
}

TEST(MergeWeights, PutsThePartsOfProcessesTogether) {
  const Folder folder;
  write_processes(folder);
  const Result result = accel({"merge-weights", ".", "out"}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(
      folder.read("out/model.safetensors"),
      safetensors(
          R"({"__metadata__":{"format":"pt"},"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"U8","shape":[3,4],"data_offsets":[8,20]}})",
          "STEPSTEP01234567abcd"));
  expect_part(
      accel({"estimate-memory", "."}, in(folder)).out, "in 2 tensors, 20 B");

  const auto says = [](const std::string& name, const std::string& from,
                       const std::string& to, const std::string& part) {
    const Folder other;
    write_processes(other);
    std::string bytes = other.read(name);
    if (from.empty()) {
      std::filesystem::remove(other / name);
    } else {
      write(other / name, bytes.replace(bytes.find(from), from.size(), to));
    }
    const Result refused = accel({"merge-weights", ".", "out"}, in(other));
    EXPECT_EQ(refused.status, 125) << part;
    expect_part(refused.err, part);
    EXPECT_FALSE(other.has("out/model.safetensors"));
  };
  const std::string last = "model.process_10.safetensors";
  says(last, "", "", "have 10 of the 12 elements of w");
  says(last, "[1,3]", "[1,2]", "model.process_1.safetensors has, too");
  says(last, "[1,3]", "[2,3]", "what it has of w is no part of it");
  says(last, "[3,4]", "[3,5]", "w is of other sizes than in");
  says(last, "[[3,4]", "[{},[]", "the place of w");
  says(last, "{\\\"w", "[\\\"w", "is no JSON object");
}

TEST(EstimateMemory, CountsParametersAndWhatBelongsToThem) {
  const Folder folder;
  write_shards(folder);
  const Result result = accel({"estimate-memory", "."}, in(folder));
  EXPECT_EQ(result.status, 0) << result.err;
  // 4 + 3 of floating point, and 8 bytes that are none.
  expect_part(result.out, "7 parameters in 3 tensors, 30 B as stored\n");
  expect_part(result.out, "largest tensor: a.weight, 16 B\n");
  const std::string row = plan_line(result.out, "float32");
  EXPECT_EQ(row, "float32 36 B 28 B 56 B 120 B 120 B");

  const Result counted = accel(
      {"estimate-memory", "--parameters", "1.5K", "--optimizer",
       "sgd-momentum", "-n", "2"},
      in(folder));
  EXPECT_EQ(
      plan_line(counted.out, "bfloat16 or float16"),
      "bfloat16 or float16 2.93 KiB 2.93 KiB 2.93 KiB 8.79 KiB 17.58 KiB")
      << counted.err;

  // Divided: what is no parameter (8 B) stays whole, and so does for a time all of
  // the weights (28 B), or the largest of them (4 numbers) and its gradient.
  const auto divided = accel({"estimate-memory", ".", "-n", "2"}, in(folder));
  const auto table = divided.out.find("per process of 2");
  ASSERT_NE(table, std::string::npos) << divided.out << divided.err;
  EXPECT_EQ(
      plan_line(divided.out.substr(table), "float32"),
      "float32 120 B 92 B 96 B");
  expect_part(counted.out, "FULL_SHARD: and the largest weight, twice");
  EXPECT_EQ(result.out.find("FULL_SHARD"), std::string::npos);
}

TEST(EstimateMemory, RefusesWhatMakesNoSense) {
  const Folder folder;
  const auto says = [&](const Strings& arguments, const std::string& part) {
    Strings all{"estimate-memory"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Result result = accel(all, in(folder));
    EXPECT_NE(result.status, 0);
    expect_part(result.err, part);
  };
  says({}, "give either MODEL or --parameters");
  says({"--parameters", "7Q"}, "'7Q' is no count");
  says({"--parameters", "-3"}, "'-3' is no count");
  says({"--parameters", "7B", "--optimiser", "sgd"}, "did you mean --optimizer?");
  says({"--parameters", "7B", "--optimizer", "adma"}, "did you mean adam?");
  says({"none.safetensors"}, "there is no such file");
  says({"7B"}, "a number of parameters is given as --parameters 7B");
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
