// DeepSpeed's settings on accel's own engine, against LibTorch alone.

#include "training.h"

#include <malloc.h>

#include <iostream>

namespace accel::test {
namespace {

AcceleratorOptions deepspeed(const DeepSpeedPlugin& plugin = {}) {
  return AcceleratorOptions().match_single_device(true).deepspeed_plugin(plugin);
}

ACCEL_RANK_FUNCTION(deepspeed_stages) {
  for (int64_t stage = 0; stage <= 3; ++stage) {
    expect_trains_like_one_device<optim::Adam>(
        deepspeed(DeepSpeedPlugin().zero_stage(stage)), optim::AdamOptions(0.01));
  }
}

TEST(DeepSpeed, EachStageTrainsLikeOneDevice) {
  run_and_expect_success("deepspeed_stages", 2);
  run_and_expect_success("deepspeed_stages", 3);
}

/// Clipped before each step, by the norm of all of an optimizer's gradients.
ACCEL_RANK_FUNCTION(deepspeed_clipping) {
  Accelerator accelerator(
      deepspeed(DeepSpeedPlugin().zero_stage(3).gradient_clipping(0.05)));
  const auto plain = std::make_shared<Net>();
  optim::SGD plain_optimizer(plain->parameters(), 0.5);
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.5);
  accelerator.prepare(net, optimizer);
  for (int64_t i = 0; i < 4; ++i) {
    plain_optimizer.zero_grad();
    const auto expected =
        torch::mse_loss(plain->forward(words(i)), target(words(i)));
    expected.backward();
    const double norm = nn::utils::clip_grad_norm_(plain->parameters(), 0.05);
    EXPECT_GT(norm, 0.05) << "nothing to clip";
    plain_optimizer.step();
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(
        net->forward(accelerator.distribute(words(i))),
        accelerator.distribute(target(words(i))));
    accelerator.backward(loss);
    optimizer.step();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
  }
  expect_equal(*net, *plain, 1e-12);
}

TEST(DeepSpeed, ClipsBeforeEachStep) {
  run_and_expect_success("deepspeed_clipping", 2);
}

/// In files: the same numbers, and less memory.
ACCEL_RANK_FUNCTION(deepspeed_offload) {
  const std::string folder = std::getenv("SHARDED_FOLDER");
  auto plugin = DeepSpeedPlugin().zero_stage(3);
  if (std::getenv("DEEPSPEED_OFFLOAD") != nullptr) {
    plugin.offload_optimizer_device("nvme").offload_optimizer_nvme_path(folder);
    plugin.offload_param_device("nvme").offload_param_nvme_path(folder);
  }
  torch::set_num_threads(1);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 16); // what is freed is given back
  Accelerator accelerator(deepspeed(plugin));
  torch::manual_seed(2);
  nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(nn::Linear(nn::LinearOptions(1024, 1024).bias(false)));
  }
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 1e-3);
  accelerator.prepare(net, optimizer);
  double loss = 0;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    const auto y =
        net->forward(accelerator.distribute(torch::randn({8, 1024})));
    const auto error = (y - 1).pow(2).mean();
    accelerator.backward(error);
    optimizer.step();
    loss = error.item<double>();
  }
  optimizer.zero_grad();
  std::printf("%a %.1f\n", loss, megabytes("RssAnon:"));
}

TEST(DeepSpeed, StatesInFilesAreTheSameNumbersInLessMemory) {
  const Folder folder;
  const auto go = [&](bool offload) {
    std::map<std::string, std::optional<std::string>> more;
    if (offload) {
      more["DEEPSPEED_OFFLOAD"] = "1";
    }
    return run_and_expect_success("deepspeed_offload", 2, folder.options(more));
  };
  const auto here = go(false), away = go(true);
  for (size_t rank = 0; rank < 2; ++rank) {
    std::string loss[2];
    double memory[2] = {};
    std::istringstream(here[rank].output) >> loss[0] >> memory[0];
    std::istringstream(away[rank].output) >> loss[1] >> memory[1];
    EXPECT_EQ(loss[0], loss[1]);
    std::cout << memory[0] << " MB, with files " << memory[1] << " MB\n";
    // Half of 48 MiB of parameters and 96 of states is 72.
    EXPECT_GT(memory[0] - memory[1], 65) << memory[0] << ' ' << memory[1];
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path)) << "files have no names";
}

/// A checkpoint of states in files, and back.
ACCEL_RANK_FUNCTION(deepspeed_offload_checkpoint) {
  const std::string folder = std::getenv("SHARDED_FOLDER");
  Accelerator accelerator(deepspeed(
      DeepSpeedPlugin()
          .zero_stage(3)
          .offload_optimizer_device("nvme")
          .offload_optimizer_nvme_path(folder)
          .offload_param_device("nvme")
          .offload_param_nvme_path(folder)));
  nn::Linear net(256, 256);
  AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  const auto train = [&] {
    optimizer.zero_grad();
    const auto loss =
        net->forward(accelerator.distribute(torch::ones({4, 256}))).pow(2).mean();
    accelerator.backward(loss);
    optimizer.step();
    return loss.item<double>();
  };
  train();
  accelerator.save_state(folder + "/state");
  const double second = train(), third = train();
  accelerator.load_state(folder + "/state");
  EXPECT_EQ(train(), second);
  EXPECT_EQ(train(), third);
}

TEST(DeepSpeed, StatesInFilesAreSavedAndLoaded) {
  const Folder folder;
  run_and_expect_success("deepspeed_offload_checkpoint", 2, folder.options());
}

/// From the Accelerator to `prepare` models are built in parts.
ACCEL_RANK_FUNCTION(deepspeed_init) {
  torch::manual_seed(6);
  const nn::Linear plain(8, 9);
  Accelerator accelerator(
      deepspeed(DeepSpeedPlugin().zero_stage(3).zero3_init_flag(true)));
  torch::manual_seed(6);
  nn::Linear net(8, 9);
  EXPECT_TRUE(ad::is_distributed(net->weight));
  expect_equal(*net, *plain, 0);
  accelerator.prepare(net);
  const nn::Linear other(8, 9);
  EXPECT_FALSE(ad::is_distributed(other->weight));
}

TEST(DeepSpeed, BuildsInPartsUntilPrepare) {
  run_and_expect_success("deepspeed_init", 2);
}

TEST(DeepSpeed, SettingsMean) {
  const auto strategy = [](int64_t stage) {
    return resolve(deepspeed(DeepSpeedPlugin().zero_stage(stage))).fsdp;
  };
  EXPECT_EQ(strategy(0), std::nullopt);
  EXPECT_EQ(strategy(1), ShardingStrategy::kShardGradOp);
  EXPECT_EQ(strategy(3), ShardingStrategy::kFullShard);
  EXPECT_EQ(resolve(deepspeed()).fsdp, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(
      resolve(deepspeed(DeepSpeedPlugin().gradient_accumulation_steps(4)))
          .gradient_accumulation_steps,
      4);
  // The environment, which asks by itself.
  ::setenv("ACCELERATE_USE_DEEPSPEED", "true", 1);
  ::setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3", 1);
  ::setenv("ACCELERATE_GRADIENT_CLIPPING", "1.5", 1);
  ::setenv("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", "none", 1);
  const auto seen = resolve(AcceleratorOptions().match_single_device(true));
  EXPECT_EQ(seen.fsdp, ShardingStrategy::kFullShard);
  EXPECT_EQ(seen.gradient_clipping, 1.5);
  expect_refused(
      AcceleratorOptions().match_single_device(true).fsdp_plugin(
          FullyShardedDataParallelPlugin()),
      "both FSDP (fsdp_plugin, ACCELERATE_USE_FSDP) and DeepSpeed");
  ::setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "4", 1);
  expect_refused(
      AcceleratorOptions().match_single_device(true),
      "zero_stage of the environment variable ACCELERATE_DEEPSPEED_ZERO_STAGE: 4 is "
      "none of 0, 1, 2 and 3");
  for (const char* name :
       {"ACCELERATE_USE_DEEPSPEED", "ACCELERATE_DEEPSPEED_ZERO_STAGE",
        "ACCELERATE_GRADIENT_CLIPPING",
        "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH"}) {
    ::unsetenv(name);
  }
}

TEST(DeepSpeed, RefusesByName) {
  expect_refused(
      deepspeed(DeepSpeedPlugin().zero_stage(2).zero3_init_flag(true)),
      "zero3_init_flag is true and zero_stage is 2");
  expect_refused(
      deepspeed(DeepSpeedPlugin().zero_stage(3).offload_param_device("nvme")),
      "offload_param_nvme_path is not given");
  expect_refused(
      deepspeed(DeepSpeedPlugin().offload_optimizer_device("disk")),
      "disk is none of none, cpu and nvme");
  expect_refused(
      AcceleratorOptions().deepspeed_plugin(DeepSpeedPlugin()),
      "match_single_device is false");
  auto twice = deepspeed(DeepSpeedPlugin().gradient_accumulation_steps(4));
  expect_refused(
      twice.gradient_accumulation_steps(2),
      "gradient_accumulation_steps is 2, and 4 in deepspeed_plugin");
}

TEST(DeepSpeed, ThePlanNamesWhoHasSaidWhat) {
  const Folder folder;
  const auto path = folder.path + "/ds.json";
  std::ofstream(path) << R"({"gradient_accumulation_steps": 2,
      "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})";
  const auto source = [](const AcceleratorOptions& options, const std::string& name) {
    for (const auto& one : options_in_force(options)) {
      if (one.name == name) {
        return one.source;
      }
    }
    return std::string("none");
  };
  const auto by_file = deepspeed(DeepSpeedPlugin().hf_ds_config(path));
  for (const char* name :
       {"gradient_accumulation_steps", "mixed_precision", "fsdp_plugin"}) {
    EXPECT_EQ(source(by_file, name), "deepspeed_config_file " + path) << name;
  }
  EXPECT_EQ(
      source(deepspeed(DeepSpeedPlugin().zero_stage(3)), "fsdp_plugin"),
      "argument deepspeed_plugin");
  EXPECT_EQ(source(deepspeed(DeepSpeedPlugin()), "mixed_precision"), "default");
  const auto megatron = AcceleratorOptions().match_single_device(true).megatron_lm_plugin(
      MegatronLMPlugin().num_micro_batches(2).gradient_clipping(0.5));
  EXPECT_EQ(
      source(megatron, "gradient_accumulation_steps"), "argument megatron_lm_plugin");
  for (const auto& one : options_in_force(megatron)) {
    if (one.name == "megatron_lm_plugin") {
      EXPECT_EQ(one.value, "tp_degree 1, gradient_clipping 0.5");
    }
    if (one.name == "deepspeed_plugin") {
      EXPECT_EQ(one.value, "no gradient_clipping");
    }
  }
}

TEST(DeepSpeed, ReadsItsFile) {
  const Folder folder;
  const auto with = [&](const std::string& text, DeepSpeedPlugin plugin = {}) {
    const auto path = folder.path + "/ds.json";
    std::ofstream(path) << text;
    return deepspeed(plugin.hf_ds_config(path));
  };
  const auto seen = resolve(with(R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 3, "gradient_clipping": 0.5,
    "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0},
    "steps_per_print": 10,
    "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": 5e8,
      "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "stage3_gather_16bit_weights_on_model_save": true}})"));
  EXPECT_EQ(seen.fsdp, ShardingStrategy::kFullShard);
  EXPECT_EQ(seen.gradient_accumulation_steps, 3);
  EXPECT_EQ(seen.gradient_clipping, 0.5);
  EXPECT_EQ(seen.mixed_precision, MixedPrecision::kBF16);
  EXPECT_TRUE(seen.offload.optimizer);
  EXPECT_FALSE(seen.offload.parameters);
  const std::string zero = R"("zero_optimization": {"stage": 3})";
  expect_refused(
      with("{" + zero + R"(, "optimizer": {"type": "Adam"}})"),
      "optimizer is {\"type\":\"Adam\"}: accel has no such option");
  expect_refused(
      with("{" + zero + R"(, "bf16": {"enabled": true}, "fp16": {"enabled": true}})"),
      "fp16/enabled is true: so is the other of fp16 and bf16");
  expect_refused(
      with("{" + zero + R"(, "train_batch_size": 16})"),
      "train_batch_size is 16: the batch size is that of the program's data loader");
  expect_refused(
      with("{" + zero + "}", DeepSpeedPlugin().zero_stage(2)),
      "zero_stage is 2 (deepspeed_plugin) and 3 (deepspeed_config_file");
  // What the program or the launcher says beside it, "no" included.
  const auto both = [&](const std::string& file, MixedPrecision precision) {
    return with("{" + zero + ", " + file + "}").mixed_precision(precision);
  };
  const std::string bf16 = R"("bf16": {"enabled": true})";
  EXPECT_EQ(
      resolve(both(bf16, MixedPrecision::kBF16)).mixed_precision,
      MixedPrecision::kBF16);
  expect_refused(
      both(bf16, MixedPrecision::kNo),
      "mixed_precision is no (argument) and bf16 (deepspeed_config_file");
  ::setenv("ACCELERATE_MIXED_PRECISION", "no", 1);
  expect_refused(
      with("{" + zero + ", " + bf16 + "}"),
      "mixed_precision is no (environment ACCELERATE_MIXED_PRECISION) and bf16 (deep");
  ::unsetenv("ACCELERATE_MIXED_PRECISION");
  const std::string off = R"("bf16": {"enabled": false})";
  expect_refused(
      both(off, MixedPrecision::kBF16), "mixed_precision is bf16 (argument), and Deep");
  EXPECT_EQ(
      resolve(both(off, MixedPrecision::kNo)).mixed_precision, MixedPrecision::kNo);
  expect_refused(
      with("{" + zero + ", " + bf16 + R"(, "fp16": {"enabled": true}})"),
      "a run has one of them");
  expect_refused(with("{"), "is no JSON");
  expect_refused(with("{}"), "has no zero_optimization");
  expect_refused(
      with(R"({"zero_optimization": {"stage": 5}})"),
      "zero_optimization/stage is 5: 5 is none of 0, 1, 2 and 3");
  expect_refused(
      deepspeed(DeepSpeedPlugin().hf_ds_config("none.json")),
      "none.json cannot be read");
}

} // namespace
} // namespace accel::test
