// Models that are built in parts, against the same model on one device.

#include "training.h"

#include <accel/checkpoint/model_files.h>

#include <malloc.h>

#include <iostream>

namespace accel::test {
namespace {

/// Everything that draws initial weights, and parameters of the model's own.
struct Large : nn::Module {
  Large() {
    torch::manual_seed(11);
    register_module("table", nn::Embedding(9, 8));
    register_module("attention", nn::MultiheadAttention(8, 2));
    register_module("encoder", nn::TransformerEncoder(
        nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12)), 2));
    register_module("lstm", nn::LSTM(nn::LSTMOptions(8, 5).num_layers(2).bidirectional(true)));
    register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 6, 3)));
    register_module("norm", nn::BatchNorm1d(6));
    register_module("layer_norm", nn::LayerNorm(nn::LayerNormOptions({6})));
    register_module("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(4)));
    auto orthogonal = register_module("orthogonal", nn::Linear(6, 5));
    nn::init::orthogonal_(orthogonal->weight);
    nn::init::constant_(orthogonal->bias, 0.25);
    auto square = register_module("square", nn::Linear(6, 6));
    nn::init::eye_(square->weight);
    nn::init::zeros_(square->bias);
    auto sparse = register_module("sparse", nn::Linear(6, 7));
    nn::init::sparse_(sparse->weight, 0.4);
    register_parameter("scaled", torch::randn({4, 3}) * 0.02);
    register_parameter("positions", torch::zeros({1, 6}));
    register_parameter("steps", torch::linspace(0, 1, 5));
    register_parameter("given", torch::tensor({1.0f, 2.0f, 4.0f}));
    register_parameter("frozen", torch::randn({6, 6}), /*requires_grad=*/false);
    register_buffer("mask", torch::ones({6, 6}).triu());
    // What a constructor may look up.
    mean = scaled_mean();
  }
  double scaled_mean() {
    return named_parameters()["scaled"].mean().item<double>();
  }
  double mean = 0;
};

/// The processes' mesh: tp as the environment says, the rest is dp_shard.
AcceleratorOptions divided() {
  const auto number = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? int64_t{1} : std::stol(value);
  };
  const int64_t tp = number("TP_OF_RUN");
  return AcceleratorOptions().match_single_device(true).parallelism_config(
      ParallelismConfig().tp_size(tp).dp_shard_size(number("WORLD_SIZE") / tp));
}

RunOptions tensor_parallel(int tp) {
  RunOptions options;
  options.environment["TP_OF_RUN"] = std::to_string(tp);
  options.timeout = std::chrono::seconds(240); // a machine with other work
  return options;
}

template <typename Model>
std::shared_ptr<Model> built_in_parts() {
  const ShardedInitGuard guard;
  const ShardedInitGuard within; // does nothing
  return std::make_shared<Model>();
}

std::vector<ad::Placement> place_of(const Tensor& parameter) {
  return ad::is_distributed(parameter) ? ad::placements(parameter.detach())
                                       : std::vector<ad::Placement>();
}

ACCEL_RANK_FUNCTION(init_draws_one_devices_weights) {
  Accelerator accelerator(divided());
  const auto plain = std::make_shared<Large>();
  const double drawn = torch::rand({}).item<double>();
  const auto model = built_in_parts<Large>();
  EXPECT_EQ(torch::rand({}).item<double>(), drawn); // the generator goes on alike
  EXPECT_NEAR(model->mean, plain->mean, 1e-7);
  // Along one axis.
  const auto& sizes = accelerator.state().options().parallelism;
  const int64_t processes = sizes && sizes->dp_shard > 1 ? sizes->dp_shard : accelerator.num_processes();
  for (const auto& item : model->named_parameters()) {
    const auto& parameter = item.value();
    EXPECT_EQ(
        ad::is_distributed(parameter.detach()),
        processes > 1 && parameter.requires_grad() && parameter.size(0) > 1 &&
            parameter.size(0) >= processes)
        << item.key();
    EXPECT_TRUE(parameter.is_leaf()) << item.key();
  }
  for (const auto& item : model->named_buffers()) {
    EXPECT_FALSE(ad::is_distributed(item.value())) << item.key();
  }
  expect_equal(*model, *plain, 0); // bit for bit
  accelerator.prepare(*model);
  expect_equal(*model, *plain, 0);
  // As if it had been divided afterwards.
  const auto other = std::make_shared<Large>();
  accelerator.prepare(*other);
  const auto places = other->named_parameters();
  for (const auto& item : model->named_parameters()) {
    EXPECT_EQ(place_of(item.value()), place_of(places[item.key()])) << item.key();
  }
}

TEST(ShardedInit, DrawsOneDevicesWeights) {
  for (const int processes : {1, 2, 3}) {
    run_and_expect_success("init_draws_one_devices_weights", processes);
  }
  run_and_expect_success("init_draws_one_devices_weights", 2, tensor_parallel(2));
  run_and_expect_success("init_draws_one_devices_weights", 4, tensor_parallel(2));
}

ACCEL_RANK_FUNCTION(init_trains_like_one_device) {
  for (const auto& how : {divided(), sharded(ShardingStrategy::kShardGradOp), sharded(ShardingStrategy::kNoShard)}) {
    Accelerator accelerator(how);
    const auto plain = std::make_shared<Net>();
    optim::Adam plain_optimizer(plain->parameters(), optim::AdamOptions(0.01).weight_decay(0.1));
    const auto net = built_in_parts<Net>();
    AcceleratedOptimizer<optim::Adam> optimizer(
        net->parameters(), optim::AdamOptions(0.01).weight_decay(0.1));
    accelerator.prepare(net, optimizer);
    for (int64_t i = 0; i < 6; ++i) {
      const double expected = step(nullptr, plain, plain_optimizer, i);
      EXPECT_NEAR(step(&accelerator, net, optimizer, i), expected, 1e-12);
    }
    expect_equal(*net, *plain, 1e-12);
  }
}

TEST(ShardedInit, TrainsLikeOneDevice) {
  for (const int processes : {1, 2, 3}) {
    run_and_expect_success("init_trains_like_one_device", processes);
  }
}

// ---- Memory, and values of files.

/// 24 layers of 4 MiB.
struct Deep : nn::Module {
  Deep() {
    torch::manual_seed(1);
    for (int i = 0; i < 24; ++i) {
      register_module(
          "layer" + std::to_string(i),
          nn::Linear(nn::LinearOptions(1024, 1024).bias(false)));
    }
  }
};

/// Prints how many MB more than before the process has had at most while `f` ran.
template <typename F>
void print_peak(F&& f) {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
  const double before = megabytes("VmRSS:");
  std::forward<F>(f)();
  std::cout << megabytes("VmHWM:") - before << ' ';
}

ACCEL_RANK_FUNCTION(init_memory) {
  Accelerator accelerator(sharded());
  const char* folder = std::getenv("SHARDED_FOLDER");
  std::shared_ptr<Deep> model;
  print_peak([&] {
    model = std::getenv("BUILT_WHOLE") != nullptr ? std::make_shared<Deep>()
                                                  : built_in_parts<Deep>();
  });
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      parameter.zero_();
    }
  }
  print_peak([&] { checkpoint::load_model(*model, folder); });
  EXPECT_EQ(
      ad::is_distributed(model->parameters()[3].detach()),
      std::getenv("BUILT_WHOLE") == nullptr);
  expect_equal(*model, Deep(), 0);
}

TEST(ShardedInit, NoProcessHoldsTheModel) {
  const Folder folder;
  {
    std::filesystem::create_directories(folder.path);
    checkpoint::save_model(Deep(), folder.path);
  }
  const auto peaks = [&](std::map<std::string, std::optional<std::string>> how) {
    std::pair<double, double> most;
    for (const auto& result : run_and_expect_success("init_memory", 4, folder.options(std::move(how)))) {
      std::istringstream text(result.output);
      double built = 0;
      double loaded = 0;
      EXPECT_TRUE(text >> built >> loaded) << result.output;
      most = {std::max(most.first, built), std::max(most.second, loaded)};
    }
    std::cout << "built: " << most.first << " MB, loaded: " << most.second << " MB\n";
    return most;
  };
  const auto [whole, unused] = peaks({{"BUILT_WHOLE", "1"}});
  (void)unused;
  EXPECT_GT(whole, 96);
  const auto [built, loaded] = peaks({});
  // A quarter, one layer that is drawn, with its copy, and what is free but not given
  // back to the system.
  EXPECT_LT(built, 24 + 3 * 4 + 20);
  EXPECT_LT(loaded, 12);
}

/// What is no part any more, or has been looked at as a whole, is loaded as well.
ACCEL_RANK_FUNCTION(init_loads_into_what_is_whole) {
  Accelerator accelerator(sharded(ShardingStrategy::kShardGradOp));
  const auto plain = std::make_shared<Net>();
  const auto net = built_in_parts<Net>();
  accelerator.prepare(net);
  const auto row = net->first->weight.detach()[2]; // sees what is written later
  const double before = row.sum().item<double>();
  step(nullptr, plain, *std::make_unique<optim::SGD>(plain->parameters(), 0.1), 0);
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.0);
  accelerator.prepare(optimizer);
  step(&accelerator, net, optimizer, 0); // weights are kept until the next backward
  const std::string file = std::string(std::getenv("SHARDED_FOLDER")) + "/net";
  if (accelerator.is_main_process()) {
    checkpoint::save_model(*plain, file);
  }
  accelerator.wait_for_everyone();
  checkpoint::load_checkpoint_in_model(*net, file);
  expect_equal(*net, *plain, 0);
  EXPECT_NE(row.sum().item<double>(), before);
  EXPECT_EQ(row.sum().item<double>(), plain->first->weight[2].sum().item<double>());
  expect_goes_on_like(accelerator, net, plain);
}

TEST(ShardedInit, LoadsIntoWhatIsWhole) {
  const Folder folder;
  run_and_expect_success("init_loads_into_what_is_whole", 2, folder.options());
}

TEST(ShardedInit, NeedsAnAccelerator) {
  expect_error([] { const ShardedInitGuard guard; }, "there is no Accelerator");
}

} // namespace
} // namespace accel::test
