// Megatron-LM's settings on accel's own engine, against LibTorch alone.

#include "training.h"

#include <iostream>

namespace accel::test {
namespace {

AcceleratorOptions megatron(const MegatronLMPlugin& plugin = {}) {
  return AcceleratorOptions().match_single_device(true).megatron_lm_plugin(plugin);
}

/// Two layers that are cut, on 2 processes whole, on 4 once more along the samples.
struct Mlp : nn::Module {
  Mlp() {
    torch::manual_seed(8);
    up = register_module("up", nn::Linear(6, 16));
    down = register_module("down", nn::Linear(16, 8));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) {
    return down->forward(torch::tanh(up->forward(x)));
  }
  nn::Linear up = nullptr, down = nullptr;
};

/// With clipping and two micro-batches for each step, as one device does it.
ACCEL_RANK_FUNCTION(megatron_training) {
  const bool divided = std::getenv("MEGATRON_DIVIDED") != nullptr;
  auto plugin = MegatronLMPlugin()
                    .tp_degree(2)
                    .pp_degree(1)
                    .num_micro_batches(2)
                    .gradient_clipping(0.05)
                    .sequence_parallelism(false)
                    .recompute_activations(false);
  if (divided) {
    plugin.use_distributed_optimizer(true);
  }
  Accelerator accelerator(megatron(plugin));
  const int64_t others = accelerator.num_processes() / 2;
  if (others > 1) {
    const auto mesh = accelerator.device_mesh();
    EXPECT_EQ(mesh.name(0), divided ? "dp_shard" : "dp_replicate");
    EXPECT_EQ(mesh.name(1), "tp");
  }
  const auto plain = std::make_shared<Mlp>();
  optim::Adam plain_optimizer(plain->parameters(), 0.05);
  const auto net = std::make_shared<Mlp>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.05);
  accelerator.prepare(net, optimizer);
  expect_equal(*net, *plain, 0);
  // A weight that is cut along tp, and where it is divided along the samples as well.
  const int64_t parts = 2 * (divided ? others : 1);
  EXPECT_EQ(
      ad::to_local(net->up->weight.detach()).numel(), 16 * 6 / parts);
  for (int64_t i = 0; i < 6; ++i) {
    torch::manual_seed(i);
    const auto x = torch::randn({8, 6}, torch::kDouble);
    const auto y = torch::randn({8, 8}, torch::kDouble);
    const auto expected = torch::mse_loss(plain->forward(x), y);
    if (i % 2 == 0) {
      plain_optimizer.zero_grad();
    }
    (expected / 2).backward();
    if (i % 2 == 1) {
      EXPECT_GT(nn::utils::clip_grad_norm_(plain->parameters(), 0.05), 0.05);
      plain_optimizer.step();
    }
    const auto step = accelerator.accumulate(net);
    const auto loss = torch::mse_loss(
        net->forward(accelerator.distribute(x)), accelerator.distribute(y));
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
  }
  expect_equal(*net, *plain, 1e-12);
}

TEST(MegatronLM, TrainsLikeOneDevice) {
  RunOptions divided;
  divided.environment["MEGATRON_DIVIDED"] = "1";
  run_and_expect_success("megatron_training", 2);
  run_and_expect_success("megatron_training", 4);
  run_and_expect_success("megatron_training", 4, divided);
}

ACCEL_RANK_FUNCTION(megatron_degree) {
  expect_error(
      [] { Accelerator accelerator(megatron(MegatronLMPlugin().tp_degree(2))); },
      "tp_degree is 2, and there are 3 processes");
}

TEST(MegatronLM, TheDegreeDividesTheProcesses) {
  run_and_expect_success("megatron_degree", 3);
}

TEST(MegatronLM, ReadsAcceleratesVariables) {
  const auto match = AcceleratorOptions().match_single_device(true);
  ::setenv("MEGATRON_LM_TP_DEGREE", "2", 1);
  EXPECT_FALSE(resolve(match).parallelism.has_value());
  ::setenv("ACCELERATE_USE_MEGATRON_LM", "true", 1);
  ::setenv("MEGATRON_LM_PP_DEGREE", "1", 1);
  ::setenv("MEGATRON_LM_GRADIENT_CLIPPING", "0.5", 1);
  ::setenv("MEGATRON_LM_NUM_MICRO_BATCHES", "3", 1);
  ::setenv("MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", "True", 1);
  ::setenv("MEGATRON_LM_SEQUENCE_PARALLELISM", "False", 1);
  auto options = resolve(match);
  ASSERT_TRUE(options.parallelism && options.fill_mesh);
  EXPECT_EQ(options.parallelism->tp, 2);
  EXPECT_EQ(options.fsdp, ShardingStrategy::kShardGradOp);
  EXPECT_EQ(options.gradient_clipping, 0.5);
  EXPECT_EQ(options.gradient_accumulation_steps, 3);
  EXPECT_TRUE(options.tp_plan.empty());
  ::setenv("MEGATRON_LM_SEQUENCE_PARALLELISM", "True", 1);
  EXPECT_EQ(
      resolve(match).tp_plan,
      (TorchTensorParallelPlugin::Plan{{"", "sequence_parallel"}}));
  // What the program says counts.
  options = resolve(megatron(
      MegatronLMPlugin().tp_degree(4).use_distributed_optimizer(false)));
  EXPECT_EQ(options.parallelism->tp, 4);
  EXPECT_FALSE(options.fsdp.has_value());
  EXPECT_FALSE(options.activation_checkpointing);
  ::setenv("MEGATRON_LM_RECOMPUTE_ACTIVATIONS", "true", 1);
  EXPECT_TRUE(resolve(match).activation_checkpointing);
  EXPECT_FALSE(resolve(megatron(MegatronLMPlugin().recompute_activations(false)))
                   .activation_checkpointing);
  for (const char* name :
       {"ACCELERATE_USE_MEGATRON_LM", "MEGATRON_LM_TP_DEGREE", "MEGATRON_LM_PP_DEGREE",
        "MEGATRON_LM_GRADIENT_CLIPPING", "MEGATRON_LM_NUM_MICRO_BATCHES",
        "MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", "MEGATRON_LM_SEQUENCE_PARALLELISM",
        "MEGATRON_LM_RECOMPUTE_ACTIVATIONS"}) {
    ::unsetenv(name);
  }
}

TEST(MegatronLM, RefusesWhatItCannotDo) {
  using Plugin = MegatronLMPlugin;
  expect_refused(megatron(Plugin().pp_degree(2)), "pp_degree of megatron_lm_plugin: 2: accel has no pipelines");
  expect_refused(megatron(Plugin().tp_degree(0)), "tp_degree of megatron_lm_plugin: 0 is not a whole number");
  expect_refused(megatron(Plugin().gradient_clipping(-1)), "-1 is no number from 0");
  expect_refused(megatron().fsdp_plugin(FullyShardedDataParallelPlugin()), "fsdp_plugin or ACCELERATE_USE_FSDP");
  expect_refused(megatron().deepspeed_plugin(DeepSpeedPlugin().zero_stage(0)), "deepspeed_plugin or ACCELERATE_USE_DEEPSPEED");
  expect_refused(
      megatron(Plugin().tp_degree(2)).parallelism_config(ParallelismConfig().tp_size(2)),
      "Leave one of them out");
  expect_refused(
      megatron(Plugin().num_micro_batches(2)).gradient_accumulation_steps(3),
      "num_micro_batches of Megatron-LM's settings 2");
  for (const auto& plugin :
       {Plugin().tp_degree(2), Plugin().use_distributed_optimizer(true)}) {
    expect_refused(AcceleratorOptions().megatron_lm_plugin(plugin), "match_single_device");
  }
}

} // namespace
} // namespace accel::test
