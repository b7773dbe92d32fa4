// How a launch is asked to divide models: by options and by files.

#include <gtest/gtest.h>

#include "commands.h"

namespace {

/// What the first process sees of these variables, a line each, in a launch with
/// some options and those that are `always` there.
std::function<std::string(Strings)> seen_with(
    const Folder& folder, const Strings& always, const Strings& names) {
  return [&folder, always, names](Strings options) {
    options.insert(options.end(), always.begin(), always.end());
    std::string all;
    for (const std::string& name : names) {
      const Result result =
          accel(launch_probe(options, {"env", name}), in(folder));
      EXPECT_EQ(result.status, 0) << result.err;
      all += result.out;
    }
    return all;
  };
}

/// That such a launch is refused, and why.
std::function<void(Strings, std::string)> says_with(
    const Folder& folder, const Strings& always) {
  return [&folder, always](Strings options, const std::string& part) {
    options.insert(options.end(), always.begin(), always.end());
    const Result result =
        accel(launch_probe(options, {"env", "RANK"}), in(folder));
    EXPECT_EQ(result.status, 2);
    expect_part(result.err, part);
  };
}

TEST(Fsdp, IsAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = seen_with(
      folder, {},
      {"ACCELERATE_USE_FSDP", "FSDP_SHARDING_STRATEGY"});
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
      "  fsdp_min_num_params: ''\n  fsdp_offload_params: true\n"
      "  fsdp_forward_prefetch: true\n  fsdp_backward_prefetch: BACKWARD_POST\n"
      "  fsdp_activation_checkpointing: true\n");
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--config-file", "units.yaml"},
        {"--fsdp", "FULL_SHARD", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP",
         "--fsdp_transformer_layer_cls_to_wrap", "Block,Embeddings",
         "--fsdp-offload-params", "true", "--fsdp-forward-prefetch", "true",
         "--fsdp_backward_prefetch", "BACKWARD_POST", "--fsdp-activation-checkpointing",
         "true"}}) {
    for (const std::string& variable :
         {"FSDP_AUTO_WRAP_POLICY=TRANSFORMER_BASED_WRAP",
          "FSDP_TRANSFORMER_CLS_TO_WRAP=Block,Embeddings", "FSDP_OFFLOAD_PARAMS=true",
          "FSDP_FORWARD_PREFETCH=true", "FSDP_BACKWARD_PREFETCH=BACKWARD_POST",
          "FSDP_ACTIVATION_CHECKPOINTING=true"}) {
      const Result result = accel(
          launch_probe(options, {"env", variable.substr(0, variable.find('='))}),
          in(folder));
      EXPECT_EQ(result.out, variable + "\n") << result.err;
    }
  }
  const auto says = says_with(folder, {});
  says({"--fsdp-auto-wrap-policy", "NO_WRAP"}, "is for --use-fsdp");
  says(
      {"--fsdp", "FULL_SHARD", "--fsdp-min-num-params", "100"},
      "--fsdp-min-num-params 100 is for --fsdp-auto-wrap-policy SIZE_BASED_WRAP");
  says({"--fsdp", "FULL"}, "FULL is none of FULL_SHARD");
  says({"--fsdp-version", "3"}, "3");
  says(
      {"--fsdp", "FULL_SHARD", "--fsdp-backward-prefetch", "PRE"},
      "PRE is none of BACKWARD_PRE, BACKWARD_POST and NO_PREFETCH");
  says({"--fsdp-sharding-strategy", "NO_SHARD"}, "is for --use-fsdp");
  says({"--fsdp-state-dict-type", "PARTS"}, "PARTS is neither FULL_STATE_DICT nor");
  says(
      {"--fsdp", "NO_SHARD", "--fsdp-sharding-strategy", "FULL_SHARD"},
      "give one of them");
}

TEST(Fsdp, IsAskedForInTheWordsOfVersionTwo) {
  const Folder folder;
  const auto seen = seen_with(
      folder, {"--use-fsdp"}, {"FSDP_SHARDING_STRATEGY", "FSDP_RESHARD_AFTER_FORWARD"});
  const auto strategy = [](const std::string& name) {
    return "FSDP_SHARDING_STRATEGY=" + name + "\nFSDP_RESHARD_AFTER_FORWARD is unset\n";
  };
  EXPECT_EQ(
      seen({"--fsdp_version", "2", "--fsdp_reshard_after_forward", "false"}),
      strategy("SHARD_GRAD_OP"));
  EXPECT_EQ(seen({"--fsdp-reshard-after-forward", "true"}), strategy("FULL_SHARD"));
  EXPECT_EQ(
      seen({"--fsdp-reshard-after-forward", "HYBRID_SHARD"}), strategy("HYBRID_SHARD"));
  // The words of the version count where both are there.
  const Strings both{
      "--fsdp_sharding_strategy", "SHARD_GRAD_OP", "--fsdp_reshard_after_forward", "true",
      "--fsdp_version"};
  for (const auto& [version, name] : std::vector<std::pair<std::string, std::string>>{
           {"1", "SHARD_GRAD_OP"}, {"2", "FULL_SHARD"}}) {
    Strings options = both;
    options.push_back(version);
    EXPECT_EQ(seen(options), strategy(name));
  }
  // An option before a file and before the environment, whatever its words.
  write(
      folder / "file.yaml",
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: true\n");
  Surroundings outer = in(folder);
  outer.environment["FSDP_RESHARD_AFTER_FORWARD"] = "true";
  const Result result = accel(
      {"launch", "--config-file", "file.yaml", "--fsdp-sharding-strategy", "NO_SHARD",
       "--dry-run", "/bin/true"},
      outer);
  expect_part(result.out, "FSDP_SHARDING_STRATEGY=NO_SHARD\n");
  EXPECT_EQ(result.out.find("FSDP_RESHARD_AFTER_FORWARD="), std::string::npos);
  const auto says = says_with(folder, {});
  says({"--fsdp-reshard-after-forward", "true"},
       "--fsdp-reshard-after-forward FULL_SHARD is for --use-fsdp");
  says({"--use-fsdp", "--fsdp-reshard-after-forward", "perhaps"},
       "perhaps is neither true (FULL_SHARD) nor false (SHARD_GRAD_OP)");
  says({"--use-fsdp", "--fsdp-reshard-after-forward", "true",
        "--fsdp-sharding-strategy", "NO_SHARD"},
       "--fsdp-reshard-after-forward true means FULL_SHARD, and "
       "--fsdp-sharding-strategy is NO_SHARD; give one of them");
}

TEST(Fsdp, DecidedSettingsAreAcceptedWhereTheySayWhatIsDone) {
  const Folder folder;
  struct Decided {
    std::string name, variable, accepted, refused, remedy;
  };
  const std::vector<Decided> decided{
      {"use_orig_params", "FSDP_USE_ORIG_PARAMS", "true", "false",
       "false cannot be had: parameters keep their names and sizes in accel; leave it out"},
      {"sync_module_states", "FSDP_SYNC_MODULE_STATES", "true", "false",
       "false cannot be had: all processes begin with process 0's parameters"},
      {"limit_all_gathers", "FSDP_LIMIT_ALL_GATHERS", "true", "false",
       "false cannot be had: accel gathers one unit ahead at most; leave it out"},
      {"activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
       "false", "true", "or have them computed again (activation_checkpointing)"},
      {"cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", "true", "perhaps",
       "perhaps is neither true nor false"},
      {"cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", "false", "2",
       "2 is neither true nor false"}};
  const auto says = says_with(folder, {});
  for (const auto& one : decided) {
    std::string option = "--fsdp_" + one.name;
    const auto file = [&](const std::string& value) {
      write(
          folder / "file.yaml",
          "distributed_type: FSDP\nfsdp_config:\n  fsdp_" + one.name + ": " + value + "\n");
      return Strings{"--config-file", "file.yaml"};
    };
    const auto seen = seen_with(folder, {}, {one.variable});
    const std::string expected = one.variable + "=" + one.accepted + "\n";
    EXPECT_EQ(seen({"--use-fsdp", option, one.accepted}), expected);
    EXPECT_EQ(seen(file(one.accepted)), expected);
    says({"--use-fsdp", option, one.refused}, one.remedy);
    says(file(one.refused), "fsdp_config: fsdp_" + one.name + ": " + one.refused + ": ");
    says(file(one.refused), one.remedy);
  }
}

TEST(DeepSpeedSettings, AreAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = seen_with(
      folder, {"-n", "2", "--output", "main"},
      {"ACCELERATE_USE_DEEPSPEED", "ACCELERATE_DEEPSPEED_ZERO_STAGE", "ACCELERATE_GRADIENT_CLIPPING", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"});
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
  const auto says = says_with(folder, {});
  EXPECT_EQ(
      seen({"--config-file", "ds.yaml", "--deepspeed_multinode_launcher", "standard"}),
      expected);
  says({"--use-deepspeed", "--deepspeed-multinode-launcher", "pdsh"},
       "pdsh: accel starts the processes of each host itself; write standard");
  says({"--zero-stage", "3"}, "--zero-stage 3 is for --use-deepspeed");
  says({"--use-deepspeed", "--fsdp", "FULL_SHARD"}, "both say how parameters are divided");
  says({"--use-deepspeed", "--zero-stage", "7"}, "7 is none of 0, 1, 2 and 3");
}

TEST(MegatronSettings, AreAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = seen_with(
      folder, {"-n", "2", "--output", "main"},
      {"ACCELERATE_USE_MEGATRON_LM", "MEGATRON_LM_TP_DEGREE", "MEGATRON_LM_GRADIENT_CLIPPING", "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER"});
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
  const auto says = says_with(folder, {"-n", "2"});
  says({"--megatron-lm-tp-degree", "2"}, "is for --use-megatron-lm");
  says({"--use-megatron-lm", "--megatron-lm-pp-degree", "2"}, "accel has no pipelines");
  says({"--use-megatron-lm", "--tp", "2"}, "both say what the processes are used for");
  says({"--use-megatron-lm", "--fsdp", "FULL_SHARD"}, "both say what the processes are used for");
}

TEST(Parallelism, IsAskedForByOptionsAndFiles) {
  const Folder folder;
  const auto seen = seen_with(
      folder, {"--output", "main"},
      {"ACCELERATE_USE_PARALLELISM_CONFIG", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "PARALLELISM_CONFIG_DP_SHARD_SIZE"});
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
  const auto says = says_with(folder, {});
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
  // By what name or file whatever; none where nothing is shared out along cp.
  const auto way_of = [&](const std::vector<std::string>& options) {
    return accel(
               launch_probe(options, {"env", "PARALLELISM_CONFIG_CP_COMM_STRATEGY"}),
               in(folder))
        .out;
  };
  const std::string ring = "PARALLELISM_CONFIG_CP_COMM_STRATEGY=alltoall\n";
  EXPECT_EQ(way_of({"-n", "2", "--cp", "2", "--cp-comm-strategy", "alltoall", "--output", "main"}), ring);
  EXPECT_EQ(
      way_of({"-n", "2", "--parallelism_config_cp_size", "2",
              "--parallelism_config_cp_comm_strategy", "alltoall", "--output", "main"}),
      ring);
  write(
      folder / "ring.yaml",
      "num_processes: 2\nparallelism_config:\n  parallelism_config_cp_size: 2\n"
      "  parallelism_config_cp_comm_strategy: alltoall\n");
  EXPECT_EQ(way_of({"--config-file", "ring.yaml", "--output", "main"}), ring);
  says({"-n", "2", "--cp", "2", "--cp-comm-strategy", "ring"},
       "ring is neither allgather nor alltoall");
  says({"-n", "2", "--sp", "2", "--cp-comm-strategy", "alltoall"},
       "--cp-comm-strategy alltoall is for --cp; give that, too");
  // What DeepSpeed would read of sp has no effect, and must be one of its words.
  const Strings names{
      "PARALLELISM_CONFIG_SP_BACKEND", "PARALLELISM_CONFIG_SP_SEQ_LENGTH",
      "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE",
      "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION"};
  const auto of_sp = seen_with(folder, {"-n", "2", "--output", "main"}, names);
  const std::string said =
      names[0] + "=deepspeed\n" + names[1] + "=128\n" + names[2] + "=False\n" + names[3] +
      "=sdpa\n";
  EXPECT_EQ(
      of_sp({"--sp", "2", "--parallelism_config_sp_backend", "deepspeed",
             "--parallelism_config_sp_seq_length", "128", "--sp-seq-length-is-variable",
             "False", "--parallelism_config_sp_attn_implementation", "sdpa"}),
      said);
  write(
      folder / "sp.yaml",
      "parallelism_config:\n  parallelism_config_sp_size: 2\n"
      "  parallelism_config_sp_backend: deepspeed\n"
      "  parallelism_config_sp_seq_length: 128\n"
      "  parallelism_config_sp_seq_length_is_variable: False\n"
      "  parallelism_config_sp_attn_implementation: sdpa\n");
  EXPECT_EQ(of_sp({"--config-file", "sp.yaml"}), said);
  says({"-n", "2", "--sp", "2", "--sp-backend", "ring"}, "ring is not deepspeed");
  says({"-n", "2", "--sp", "2", "--sp-seq-length", "long"},
       "long is neither a number of positions nor none");
  says({"-n", "2", "--sp", "2", "--sp-attn-implementation", "eager"},
       "eager is none of sdpa, flash_attention_2");
  says({"-n", "2", "--cp", "2", "--sp-backend", "deepspeed"},
       "--sp-backend deepspeed is for --sp; give that, too");
  says({"-n", "2", "--dp-shard", "2", "--min-processes", "1"},
       "cannot go on with fewer");
}

} // namespace
