// Parameters, gradients and what optimizers keep that lie on the host while nobody
// computes with them: the numbers are those without, bit for bit, and the device has room.

#include "training.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace accel::sim::test {
namespace {

namespace optim = torch::optim;
using accel::AcceleratedOptimizer;
using accel::DeepSpeedPlugin;
using accel::FullyShardedDataParallelPlugin;
using accel::ShardingStrategy;

/// Counts its steps, so that it must be called once for all parameters.
struct Counting : optim::Adam {
  using optim::Adam::Adam;
  Tensor step(LossClosure closure = nullptr) override {
    ++steps;
    return optim::Adam::step(std::move(closure));
  }
  int steps = 0;
};

/// Layers that are large enough to be moved, in parts of four, too; and some that are not.
struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    for (int i = 0; i < 4; ++i) {
      layers->push_back(torch::nn::Linear(i == 0 ? 6 : 64, 64));
    }
    register_module("layers", layers);
    last = register_module("last", torch::nn::Linear(64, 2));
  }
  Tensor forward(Tensor x) {
    for (const auto& layer : *layers) {
      x = torch::tanh(layer->as<torch::nn::Linear>()->forward(x));
    }
    return last->forward(x);
  }
  torch::nn::ModuleList layers;
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(Deep);

using Options = std::function<AcceleratorOptions()>;

AcceleratorOptions fsdp(ShardingStrategy strategy, bool offload) {
  return matching().fsdp_plugin(
      FullyShardedDataParallelPlugin().sharding_strategy(strategy).cpu_offload(offload));
}
AcceleratorOptions deepspeed(int64_t stage, const char* optimizer, const char* parameters) {
  auto plugin = DeepSpeedPlugin().zero_stage(stage);
  plugin.offload_optimizer_device(optimizer).offload_param_device(parameters);
  plugin.offload_optimizer_nvme_path(folder()).offload_param_nvme_path(folder());
  return matching().deepspeed_plugin(plugin);
}

/// Trains, and touches weights and gradients in the ways that programs do between steps.
/// What it has printed on one device, were it one.
template <typename Optimizer, typename Settings>
std::vector<double> train(const AcceleratorOptions& options, const Settings& settings) {
  Accelerator accelerator(options);
  torch::manual_seed(5);
  Deep net;
  net->to(torch::kDouble);
  AcceleratedOptimizer<Optimizer> optimizer(net->parameters(), settings);
  accelerator.prepare(net, optimizer);
  std::vector<Tensor> average;
  for (const auto& parameter : net->parameters()) {
    average.push_back(parameter.detach().clone());
  }
  std::vector<double> numbers;
  for (int64_t i = 0; i < 4; ++i) {
    const auto host = inputs(i);
    const auto x = accelerator.distribute(accelerator.send_to_device(host));
    const auto y = accelerator.distribute(targets(host).to(accelerator.device()));
    const auto loss_of = [&] {
      auto loss = torch::mse_loss(net->forward(x), y);
      for (const auto& parameter : net->parameters()) {
        loss = loss + 1e-4 * parameter.abs().sum(); // read beside the layers
      }
      return loss;
    };
    if constexpr (std::is_same_v<Optimizer, optim::LBFGS>) {
      const auto loss = optimizer.step([&] {
        optimizer.zero_grad();
        auto inner = loss_of();
        accelerator.backward(inner);
        return inner;
      });
      numbers.push_back(loss.template item<double>());
    } else {
      optimizer.zero_grad();
      for (int half = 0; half < 2; ++half) { // accumulated by hand
        auto loss = loss_of() / 2;
        accelerator.backward(loss);
        numbers.push_back(loss.template item<double>());
      }
      for (const auto& parameter : net->parameters()) {
        parameter.grad().mul_(0.9);
      }
      numbers.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5));
      optimizer.step();
    }
    const torch::NoGradGuard no_grad;
    size_t k = 0;
    for (auto& parameter : net->parameters()) {
      average[k].mul_(0.5).add_(parameter, 0.5);
      ++k;
    }
    net->last->weight.clamp_(-0.2, 0.2); // written between steps
    net->layers[1]->as<torch::nn::Linear>()->weight[3].zero_();
  }
  for (const auto& one : average) {
    numbers.push_back(one.pow(2).sum().item<double>());
  }
  if constexpr (std::is_same_v<Optimizer, Counting>) {
    EXPECT_EQ(optimizer.steps, 4);
  }
  return numbers;
}

template <typename Optimizer, typename Settings>
void expect_the_same(const Options& without, const Options& with, const Settings& settings) {
  const auto expected = train<Optimizer>(without(), settings);
  EXPECT_EQ(train<Optimizer>(with(), settings), expected);
}

const auto kAdam = optim::AdamOptions(0.01).amsgrad(true);

ACCEL_RANK_FUNCTION(sim_offload_alone) {
  for (const char* to : {"cpu", "nvme"}) {
    expect_the_same<optim::Adam>(
        [] { return deepspeed(0, "none", "none"); },
        [&] { return deepspeed(0, to, "none"); }, kAdam);
  }
}

ACCEL_RANK_FUNCTION(sim_offload_strategies) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    expect_the_same<optim::Adam>(
        [&] { return fsdp(strategy, false); }, [&] { return fsdp(strategy, true); }, kAdam);
  }
  expect_the_same<optim::Adam>(
      [] { return deepspeed(2, "none", "none"); }, [] { return deepspeed(2, "cpu", "none"); },
      kAdam);
  expect_the_same<optim::Adam>(
      [] { return deepspeed(3, "none", "none"); },
      [] { return deepspeed(3, "nvme", "nvme"); }, kAdam);
}

ACCEL_RANK_FUNCTION(sim_offload_optimizers) {
  const auto without = [] { return deepspeed(3, "none", "none"); };
  const auto with = [] { return deepspeed(3, "cpu", "cpu"); };
  expect_the_same<optim::SGD>(without, with, optim::SGDOptions(0.05).momentum(0.9));
  expect_the_same<optim::AdamW>(without, with, optim::AdamWOptions(0.01));
  expect_the_same<optim::RMSprop>(
      without, with, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  expect_the_same<optim::Adagrad>(without, with, optim::AdagradOptions(0.05));
  expect_the_same<optim::LBFGS>(without, with, optim::LBFGSOptions(0.1).max_iter(4));
  expect_the_same<Counting>(without, with, optim::AdamOptions(0.01));
}

} // namespace

TEST(SimOffload, TrainsTheSameBitForBit) {
  const SharedFolder shared;
  const auto run = [&](const char* what, int count) {
    auto options = shared.on_devices(count);
    options.environment["ACCEL_SIM_LATENCY_US"] = "100";
    accel::test::run_and_expect_success(what, count, options);
  };
  run("sim_offload_alone", 1);
  for (const int count : counts({2}, 2)) {
    run("sim_offload_strategies", count);
    run("sim_offload_optimizers", count);
  }
}

// ---- Room on the device.

namespace {

/// 48 MiB of weights: with gradients and Adam's states 192.
double train_large(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  torch::manual_seed(2);
  torch::nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(1024, 1024).bias(false)));
  }
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 1e-3);
  accelerator.prepare(net, optimizer);
  double result = 0;
  for (int i = 0; i < 2; ++i) {
    const auto x = accelerator.distribute(
        torch::linspace(0, 1, 8 * 1024).reshape({8, 1024}).to(accelerator.device()));
    const auto loss = (net->forward(x) - 1).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    result = loss.item<double>();
  }
  return result;
}

} // namespace

ACCEL_RANK_FUNCTION(sim_offload_makes_room) {
  const bool alone = std::string(std::getenv("WORLD_SIZE")) == "1";
  const int64_t stage = alone ? 0 : 3;
  const char* parameters = alone ? "none" : "cpu";
  accel::sim::set_memory_limit(0, size_t{4096} << 20);
  const double expected = train_large(deepspeed(stage, "none", "none"));
  // Parts of two: 96 MiB without, of which a unit's parts and gradients are left.
  const size_t limit = (alone ? size_t{170} : size_t{80}) << 20;
  for (c10::DeviceIndex index = 0; index < (alone ? 1 : 2); ++index) {
    accel::sim::set_memory_limit(index, limit);
  }
  EXPECT_EQ(train_large(deepspeed(stage, "cpu", parameters)), expected);
  EXPECT_NE(
      accel::test::error_of([&] { train_large(deepspeed(stage, "none", "none")); }), "");
}

TEST(SimOffload, MakesRoom) {
  const SharedFolder shared;
  for (const int count : {1, 2}) {
    accel::test::run_and_expect_success(
        "sim_offload_makes_room", count, shared.on_devices(count));
  }
}

// ---- Checkpoints.

ACCEL_RANK_FUNCTION(sim_offload_checkpoint) {
  const bool before = std::getenv("OFFLOAD_BEFORE") != nullptr;
  const auto options = [](bool offload) {
    return offload ? deepspeed(3, "cpu", "cpu") : deepspeed(3, "none", "none");
  };
  const auto path = folder() + (before ? "/from_host" : "/from_device");
  const auto step = [](Accelerator& accelerator, Deep& net, auto& optimizer) {
    const auto x = accelerator.distribute(inputs(0).to(accelerator.device()));
    const auto loss = net->forward(x).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    return loss.template item<double>();
  };
  std::vector<double> expected;
  for (const bool offload : {before, !before, before}) {
    Accelerator accelerator(options(offload));
    torch::manual_seed(5);
    Deep net;
    net->to(torch::kDouble);
    AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
    accelerator.prepare(net, optimizer);
    if (expected.empty()) {
      step(accelerator, net, optimizer);
      accelerator.save_state(path, accel::SaveStateOptions().asynchronous(true));
    } else {
      accelerator.load_state(path);
    }
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) {
      losses.push_back(step(accelerator, net, optimizer));
    }
    if (expected.empty()) {
      expected = losses;
      accelerator.load_state(path); // into what lies on the host
      EXPECT_EQ(step(accelerator, net, optimizer), expected[0]);
    }
    EXPECT_EQ(losses, expected) << offload;
  }
}

TEST(SimOffload, IsSavedAndLoaded) {
  const SharedFolder shared;
  auto options = shared.on_devices(2);
  accel::test::run_and_expect_success("sim_offload_checkpoint", 2, options);
  options.environment["OFFLOAD_BEFORE"] = "1";
  accel::test::run_and_expect_success("sim_offload_checkpoint", 2, options);
}

} // namespace accel::sim::test
