// Training on simulated devices, on which everything is late: accumulation,
// mixed precision, checkpoints that go from devices to the CPU and back, sharded
// parameters, meshes, threads. What is expected is plain LibTorch's, on the CPU in
// float64, but where a test says so.

#include "device/backend.h"
#include "training.h"

#include <accel/parallel/fully_sharded.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <chrono>
#include <fstream>
#include <thread>

namespace sim = accel::sim;
namespace ad = accel::distributed;
using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::MixedPrecision;
using accel::test::contains;
using torch::Tensor;
using namespace accel::sim::test;

// ---- Steps

ACCEL_RANK_FUNCTION(sim_accumulates) {
  Training training(matching().gradient_accumulation_steps(3));
  training.expect(plain_losses(9, 3));
}

TEST(SimTraining, AccumulatesGradients) {
  for (const int count : counts({2, 4})) {
    accel::test::run_and_expect_success("sim_accumulates", count, devices(count));
  }
}

// A program may make another device current, and device 0 is the current one of a
// new thread, whichever device the process has.
ACCEL_RANK_FUNCTION(sim_other_device_is_current) {
  Training training(matching());
  {
    const c10::DeviceGuard other(
        sim::device(training.accelerator.process_index() == 0 ? 1 : 0));
    training.expect(plain_losses(4));
  }
  std::thread([&] {
    auto& accelerator = training.accelerator;
    const auto mine =
        torch::full({2}, accelerator.process_index() + 1, accelerator.device());
    EXPECT_EQ(accelerator.reduce(mine).device(), accelerator.device());
    const int64_t all = accelerator.num_processes();
    EXPECT_EQ(accelerator.gather(mine).sum().item<int64_t>(), all * (all + 1));
    accelerator.wait_for_everyone();
  }).join();
}

// Processes whose plain losses differ by rounding go on; by more, they do not.
static void train_with_losses_apart(double off) {
  Training training(matching());
  for (int i = 0; i < 4; ++i) {
    const auto x = inputs(0).to(training.accelerator.device());
    const auto factor = 1 + off * static_cast<double>(training.accelerator.process_index());
    training.accelerator.backward(
        torch::mse_loss(training.net->forward(x), targets(x)) * factor);
    training.optimizer.step();
    training.optimizer.zero_grad();
  }
}
ACCEL_RANK_FUNCTION(sim_losses_round) {
  train_with_losses_apart(1e-12);
}
ACCEL_RANK_FUNCTION(sim_losses_differ) {
  train_with_losses_apart(1e-2);
}

TEST(SimTraining, LossesMayDifferByRounding) {
  for (const int count : counts({2}, 2)) {
    accel::test::run_and_expect_success("sim_losses_round", count, devices(count));
    for (const auto& result : accel::test::run("sim_losses_differ", count, devices(count))) {
      EXPECT_FALSE(result.success());
      EXPECT_TRUE(contains(result.error + result.output, "not the same on all processes"))
          << result.error;
    }
  }
}

TEST(SimTraining, WhileAnotherDeviceIsCurrent) {
  for (const int count : counts({2}, 2)) {
    accel::test::run_and_expect_success("sim_other_device_is_current", count, devices(count));
  }
}

// Gradients are not there yet when their sum is asked for.
ACCEL_RANK_FUNCTION(sim_slow_gradients) {
  Training training(matching());
  const auto losses = plain_losses(3);
  for (int64_t i = 0; i < 3; ++i) {
    training.net->last->weight.register_hook([&](const Tensor& gradient) {
      sim::give(stream_of(training.accelerator), "a slow kernel", [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      });
      return gradient;
    });
    EXPECT_NEAR(training.step(i), losses[static_cast<size_t>(i)], 1e-9);
  }
  EXPECT_NEAR(training.step(3), plain_losses(4)[3], 1e-9);
}

TEST(SimTraining, SumsWaitForGradients) {
  for (const int count : counts({2})) {
    accel::test::run_and_expect_success("sim_slow_gradients", count, devices(count));
  }
}

ACCEL_RANK_FUNCTION(sim_waits_for_everyone) {
  Accelerator accelerator;
  const auto path = folder() + "/done";
  if (accelerator.process_index() == 1) {
    sim::give(stream_of(accelerator), "a slow kernel", [path] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::ofstream(path) << "done";
    });
  }
  accelerator.wait_for_everyone();
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(SimTraining, WaitsForTheDevicesOfEveryone) {
  for (const int count : counts({2}, 2)) {
    const SharedFolder shared;
    const auto options = shared.on_devices(count);
    accel::test::run_and_expect_success("sim_waits_for_everyone", count, options);
  }
}

// The library's own group, as libaccel makes it: what its works order, and for whom.
ACCEL_RANK_FUNCTION(sim_group) {
  const Accelerator accelerator;
  const auto device = accelerator.device();
  const auto path = folder() + "/slow";
  accel::detail::DeviceGroupRequest request;
  request.rank = accelerator.process_index();
  request.size = accelerator.num_processes();
  request.store = c10::make_intrusive<c10d::FileStore>(
      folder() + "/store", static_cast<int>(request.size));
  request.device = device;
  request.timeout = std::chrono::seconds(20);
  request.name = "tested";
  const auto group = accel::detail::backend_for(sim::kSim).make(request);

  // Device 1 comes to the barrier when all hosts are behind it; the other devices
  // wait for it.
  if (request.rank == 1) {
    sim::give(stream_of(accelerator), "a slow kernel", [path, size = request.size] {
      for (int64_t i = 0; i < size; ++i) {
        while (!std::filesystem::exists(path + std::to_string(i))) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      }
      std::ofstream(path) << "done";
    });
  }
  group->barrier()->wait();
  std::ofstream(path + std::to_string(request.rank)) << "behind it";
  bool was_there = false;
  sim::give(stream_of(accelerator), "after the barrier", [&] {
    was_there = std::filesystem::exists(path);
  });
  accelerator.wait_for_device();
  EXPECT_TRUE(was_there);

  // Several as one: their common work is waited for.
  std::vector<Tensor> ones{torch::ones({3}, device)};
  std::vector<Tensor> twos{torch::full({2}, 2., device)};
  EXPECT_TRUE(group->supportsCoalescing());
  group->startCoalescing();
  const auto part = group->allreduce(ones);
  group->allreduce(twos);
  const auto all = group->endCoalescing();
  EXPECT_THROW(part->wait(), c10::Error);
  all->wait();
  EXPECT_EQ(ones[0].sum().item<double>(), 3 * static_cast<double>(request.size));
  EXPECT_EQ(twos[0].sum().item<double>(), 4 * static_cast<double>(request.size));
  accelerator.wait_for_everyone();
}

TEST(SimTraining, BarriersAndCoalescedOperations) {
  for (const int count : counts({2}, 2)) {
    const SharedFolder shared;
    const auto options = shared.on_devices(count);
    accel::test::run_and_expect_success("sim_group", count, options);
  }
}

// ---- Mixed precision

// Half precision on a device is no CPU's, so what is expected is what follows from
// the formats: which operators compute in them, steps that are left out.
void train_in_half_precision(const AcceleratorOptions& how) {
  for (const auto precision : {MixedPrecision::kBF16, MixedPrecision::kFP16}) {
    const auto dtype =
        precision == MixedPrecision::kFP16 ? torch::kHalf : torch::kBFloat16;
    Training training(
        AcceleratorOptions(how).mixed_precision(precision).grad_scaler(
            accel::GradScalerOptions().init_scale(1e30).growth_interval(2)),
        torch::kFloat);
    {
      const auto autocast = training.accelerator.autocast();
      const auto x = inputs(0).to(training.accelerator.device(), torch::kFloat);
      EXPECT_EQ(training.net->first->forward(x).scalar_type(), dtype);
    }
    const auto loss = plain_losses(1)[0];
    const auto before = training.net->first->weight.detach().clone();
    EXPECT_NEAR(training.step(0), loss, 0.02 * loss);
    const bool left_out = torch::equal(training.net->first->weight, before);
    EXPECT_EQ(left_out, precision == MixedPrecision::kFP16);
    if (precision == MixedPrecision::kBF16) {
      continue;
    }
    // 1e30 is infinite in gradients: halved until it is not.
    auto scale = training.accelerator.scaler()->get_scale();
    EXPECT_NEAR(scale, 0.5e30, 1e23);
    int64_t i = 1;
    while (i < 100 && torch::equal(training.net->first->weight, before)) {
      training.step(i++);
    }
    EXPECT_LT(i, 100);
    EXPECT_GT(training.accelerator.scaler()->get_scale(), 0);
    EXPECT_TRUE(training.net->first->weight.isfinite().all().item<bool>());
    // All processes have left out the same steps.
    for (const auto count :
         training.accelerator.gather_object(std::vector<int64_t>{i})) {
      EXPECT_EQ(count, i);
    }
  }
}

ACCEL_RANK_FUNCTION(sim_half_precision) {
  train_in_half_precision(matching());
}

ACCEL_RANK_FUNCTION(sim_half_precision_in_parts) {
  using accel::ShardingStrategy;
  for (const auto strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    train_in_half_precision(matching().fsdp_plugin(
        accel::FullyShardedDataParallelPlugin().sharding_strategy(strategy)));
  }
}

TEST(SimTraining, InHalfPrecision) {
  for (const int count : counts({2})) {
    for (const char* how : {"sim_half_precision", "sim_half_precision_in_parts"}) {
      accel::test::run_and_expect_success(how, count, devices(count));
    }
  }
}

// ---- Checkpoints

ACCEL_RANK_FUNCTION(sim_saves) {
  Training training(matching());
  const auto losses = plain_losses(3);
  training.expect(losses);
  training.accelerator.save_state(
      folder() + "/first", accel::SaveStateOptions().asynchronous(true));
  // Goes on while it is written.
  training.step(3);
  training.accelerator.wait_for_everyone();
}

ACCEL_RANK_FUNCTION(sim_loads_and_saves) {
  Training training(matching());
  EXPECT_TRUE(training.accelerator.device().is_cpu());
  training.accelerator.load_state(folder() + "/first");
  training.expect(plain_losses(6), 3);
  training.accelerator.save_state(folder() + "/second");
}

ACCEL_RANK_FUNCTION(sim_loads) {
  Training training(matching());
  EXPECT_FALSE(training.accelerator.device().is_cpu());
  training.accelerator.load_state(folder() + "/second");
  training.expect(plain_losses(9), 6);
}

TEST(SimTraining, CheckpointsGoFromDevicesToTheCpuAndBack) {
  for (const int count : counts({2})) {
    const SharedFolder shared;
    const auto options = shared.on_devices(count);
    accel::test::run_and_expect_success("sim_saves", count, options);
    auto on_cpu = options;
    on_cpu.environment["ACCELERATE_USE_CPU"] = "1";
    accel::test::run_and_expect_success("sim_loads_and_saves", 1, on_cpu);
    accel::test::run_and_expect_success("sim_loads", count, options);
  }
}

// ---- Parameters and tensors in parts

ACCEL_RANK_FUNCTION(sim_sharded) {
  for (const auto strategy :
       {accel::ShardingStrategy::kFullShard, accel::ShardingStrategy::kShardGradOp}) {
    Training training(matching().fsdp_plugin(
        accel::FullyShardedDataParallelPlugin().sharding_strategy(strategy)));
    EXPECT_TRUE(ad::is_distributed(training.net->first->weight));
    training.expect(plain_losses(5));
  }
}

TEST(SimTraining, WithParametersInParts) {
  for (const int count : counts({2, 4}, 2)) {
    accel::test::run_and_expect_success("sim_sharded", count, devices(count));
  }
}

// Units that a policy makes, and gradients that are summed in another type than theirs.
ACCEL_RANK_FUNCTION(sim_units_of_a_policy) {
  using accel::AutoWrapPolicy;
  using accel::MixedPrecisionPolicy;
  const auto plugin = [] { return accel::FullyShardedDataParallelPlugin(); };
  const auto losses = plain_losses(4);
  for (const auto& units :
       {plugin().auto_wrap_policy(AutoWrapPolicy::kNoWrap),
        plugin()
            .auto_wrap_policy(AutoWrapPolicy::kTransformerBasedWrap)
            .transformer_cls_names_to_wrap({"Linear"})}) {
    Training training(matching().fsdp_plugin(units));
    training.expect(losses);
  }
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    Training training(matching().fsdp_plugin(plugin().mixed_precision_policy(
        MixedPrecisionPolicy().reduce_dtype(dtype))));
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(
          training.step(static_cast<int64_t>(i)), losses[i],
          dtype == torch::kFloat ? 1e-5 : 1e-9);
    }
  }
}

TEST(SimTraining, WithUnitsOfAPolicy) {
  for (const int count : counts({2, 4}, 2)) {
    accel::test::run_and_expect_success("sim_units_of_a_policy", count, devices(count));
  }
}

ACCEL_RANK_FUNCTION(sim_mesh) {
  Accelerator accelerator(matching());
  const auto device = accelerator.device();
  const auto mesh = ad::init_device_mesh({2, 2}, {"dp", "tp"});
  const auto x = inputs(0).slice(0, 0, 8);
  const auto up = inputs(1).slice(0, 0, 6);
  const auto down = inputs(2).slice(0, 0, 6);
  // Columns, then rows, of two layers: the sum is that over "tp".
  auto x_there = ad::distribute_tensor(
      x.to(device), mesh, {ad::Shard(0), ad::Replicate()});
  auto up_there = ad::distribute_tensor(
                      up.to(device), mesh, {ad::Replicate(), ad::Shard(1)})
                      .requires_grad_();
  auto down_there = ad::distribute_tensor(
                        down.to(device), mesh, {ad::Replicate(), ad::Shard(0)})
                        .requires_grad_();
  const auto y = torch::tanh(x_there.mm(up_there)).mm(down_there);
  y.pow(2).mean().backward();
  auto up_here = up.clone().requires_grad_();
  auto down_here = down.clone().requires_grad_();
  const auto expected = torch::tanh(x.mm(up_here)).mm(down_here);
  expected.pow(2).mean().backward();
  const auto expect_equal = [&](const Tensor& there, const Tensor& here) {
    const auto whole = ad::full_tensor(there);
    EXPECT_EQ(whole.device(), device);
    EXPECT_TRUE(torch::allclose(whole.cpu(), here, 1e-12, 1e-12)) << whole << here;
  };
  expect_equal(y.detach(), expected.detach());
  expect_equal(up_there.grad(), up_here.grad());
  expect_equal(down_there.grad(), down_here.grad());
}

TEST(SimTraining, OnAMeshOfFourDevices) {
  accel::test::run_and_expect_success("sim_mesh", 4, devices(4));
}

ACCEL_RANK_FUNCTION(sim_hybrid_sharded) {
  for (const auto strategy :
       {accel::ShardingStrategy::kHybridShard,
        accel::ShardingStrategy::kHybridShardZero2}) {
    Training training(
        matching()
            .parallelism_config(
                accel::ParallelismConfig().dp_replicate_size(2).dp_shard_size(2))
            .fsdp_plugin(
                accel::FullyShardedDataParallelPlugin().sharding_strategy(
                    strategy)));
    EXPECT_TRUE(ad::is_distributed(training.net->first->weight));
    training.expect(plain_losses(5));
  }
}

TEST(SimTraining, WithParametersInPartsOfGroups) {
  accel::test::run_and_expect_success("sim_hybrid_sharded", 4, devices(4));
}

ACCEL_RANK_FUNCTION(sim_tensor_parallel) {
  const int64_t replicas = std::stol(std::getenv("WORLD_SIZE")) / 2;
  Training training(
      matching()
          .torch_tp_plugin(accel::TorchTensorParallelPlugin())
          .parallelism_config(
              accel::ParallelismConfig().tp_size(2).dp_replicate_size(replicas)));
  EXPECT_TRUE(ad::is_distributed(training.net->first->weight));
  training.expect(plain_losses(5));
}

TEST(SimTraining, WithLayersInParts) {
  for (const int count : counts({2, 4}, 2)) {
    accel::test::run_and_expect_success(
        "sim_tensor_parallel", count, devices(count));
  }
}
