// What the runtime asks of devices, on the simulated one: which it chooses, what
// it keeps in checkpoints, memory that runs out.

#include "../runtime/expectations.h"
#include "../runtime/multiprocess.h"
#include "sim/sim.h"

#include <accel/accel.h>
#include <accel/checkpoint/random_state.h>
#include <accel/utils/memory.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include <unistd.h>

namespace sim = accel::sim;
using accel::test::contains;

ACCEL_RANK_FUNCTION(sim_says_device) {
  try {
    accel::Accelerator accelerator;
    std::cout << "on " << accelerator.device();
    if (!accelerator.device().is_cpu()) {
      std::cout << " current "
                << torch::ones({1}, torch::Device(sim::kSim)).device();
    }
    std::cout << std::endl;
  } catch (const c10::Error& error) {
    std::cout << "error " << error.what_without_backtrace() << std::endl;
  }
}

static std::string said(
    int processes,
    std::map<std::string, std::optional<std::string>> environment,
    int rank = 0) {
  accel::test::RunOptions options;
  options.environment = std::move(environment);
  return accel::test::run("sim_says_device", processes, options)
      .at(static_cast<size_t>(rank))
      .output;
}

TEST(SimRuntime, ChoosesTheDeviceOfTheLocalRank) {
  std::string text;
  EXPECT_TRUE(contains(said(1, {}), "on sim:0 current sim:0"));
  EXPECT_TRUE(contains(said(2, {}, 1), "on sim:1 current sim:1"));
  EXPECT_TRUE(contains(said(1, {{"ACCEL_DEVICE_TYPE", "sim"}}), "on sim:0"));
  EXPECT_TRUE(contains(said(1, {{"ACCEL_DEVICE_TYPE", "cpu"}}), "on cpu"));
  EXPECT_TRUE(contains(said(1, {{"ACCELERATE_USE_CPU", "1"}}), "on cpu"));
  text = said(1, {{"ACCEL_SIM_DEVICES", "0"}});
  EXPECT_TRUE(contains(text, "on cpu")) << text;
}

TEST(SimRuntime, SaysWhatIsWrongWithTheChoice) {
  auto text = said(1, {{"ACCEL_DEVICE_TYPE", "toaster"}});
  EXPECT_TRUE(contains(text, "ACCEL_DEVICE_TYPE is 'toaster'")) << text;
  EXPECT_TRUE(contains(text, "knows no such kind")) << text;
  text = said(1, {{"ACCEL_DEVICE_TYPE", "xpu"}});
  EXPECT_TRUE(contains(text, "finds no such device")) << text;
  text = said(3, {});
  EXPECT_TRUE(contains(text, "3 processes on this host, but 2 sim devices")) << text;
  text = said(2, {{"ACCEL_DEVICE_BACKEND", std::nullopt}});
  EXPECT_TRUE(contains(text, "no library is known that carries tensors of the sim devices")) << text;
  text = said(2, {{"ACCEL_DEVICE_BACKEND", "/not/there.so"}});
  EXPECT_TRUE(contains(text, "ACCEL_DEVICE_BACKEND is '/not/there.so', which is not there")) << text;
  text = said(2, {{"ACCEL_BACKEND", "nccl"}});
  EXPECT_TRUE(contains(text, "ACCEL_BACKEND is nccl, which is for GPUs")) << text;
}

ACCEL_RANK_FUNCTION(sim_random_state) {
  accel::Accelerator accelerator;
  const auto& device = accelerator.device();
  const auto folder = std::filesystem::temp_directory_path() /
      ("accel-sim-" + std::to_string(::getpid()));
  torch::rand({3}, device);
  const auto state = accel::checkpoint::random_state();
  EXPECT_TRUE(state.contains("torch_cpu"));
  EXPECT_TRUE(state.contains("torch_sim_0"));
  EXPECT_TRUE(state.contains("torch_sim_1"));
  accelerator.save_state(folder.string());
  const auto next = torch::rand({3}, device).cpu();
  torch::manual_seed(99);
  accelerator.load_state(folder.string());
  EXPECT_TRUE(torch::equal(torch::rand({3}, device).cpu(), next));
  std::filesystem::remove_all(folder);
}

TEST(SimRuntime, CheckpointsHoldTheDevicesRandomState) {
  accel::test::run_and_expect_success("sim_random_state", 1);
}

ACCEL_RANK_FUNCTION(sim_memory) {
  accel::Accelerator accelerator;
  sim::set_memory_limit(0, size_t{3} << 20);
  std::vector<int64_t> tried;
  const auto fits = accel::find_executable_batch_size(
      [&](int64_t rows) {
        tried.push_back(rows);
        return torch::ones({rows, 8192}, accelerator.device()).size(0);
      },
      accel::FindExecutableBatchSizeOptions().starting_batch_size(128));
  EXPECT_GT(tried.size(), 1u);
  EXPECT_LE(fits * 8192 * 4, 3 << 20);
  // What was tried is not kept.
  auto* allocator = c10::getDeviceAllocator(sim::kSim);
  accel::clear_device_cache();
  EXPECT_EQ(allocator->getDeviceStats(0).allocated_bytes[0].current, 0);
  EXPECT_EQ(allocator->getDeviceStats(0).reserved_bytes[0].current, 0);
}

TEST(SimRuntime, ASmallerBatchIsFoundWhereMemoryRunsOut) {
  accel::test::run_and_expect_success("sim_memory", 1);
}

// A batch is sent while the device still works; its pinned copy must live until
// it was read.
ACCEL_RANK_FUNCTION(sim_sending) {
  sim::set_latency(std::chrono::milliseconds(5));
  accel::Accelerator accelerator;
  std::vector<torch::Tensor> sent;
  for (int i = 0; i < 6; ++i) {
    auto host = torch::full({1000}, i, torch::kDouble);
    sent.push_back(accelerator.send_to_device(host, /*non_blocking=*/true));
    host.fill_(-1);
  }
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(sent[static_cast<size_t>(i)].sum().item<double>(), 1000 * i);
  }
}

TEST(SimRuntime, SendsAheadOfTheDevice) {
  accel::test::run_and_expect_success("sim_sending", 1);
}

// Gradients are summed on a stream of their own, late: without waits between the
// streams the sums would be other ones.
ACCEL_RANK_FUNCTION(sim_late_gradients) {
  sim::set_latency(std::chrono::milliseconds(3));
  accel::Accelerator accelerator(
      accel::AcceleratorOptions().match_single_device(true).bucket_cap_mb(0.001));
  torch::manual_seed(3);
  torch::nn::Sequential net(
      torch::nn::Linear(16, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  net->to(torch::kDouble);
  auto alone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.1);
  torch::optim::SGD plain(alone->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  const auto x = torch::arange(160, torch::kDouble).sin().reshape({10, 16});
  for (int step = 0; step < 4; ++step) {
    auto guard = accelerator.accumulate(net);
    const auto batch = accelerator.distribute(x.to(accelerator.device()));
    const auto loss = net->forward(batch).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    const auto expected = alone->forward(x).pow(2).mean();
    plain.zero_grad();
    expected.backward();
    plain.step();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12) << step;
  }
  const auto own = net->parameters();
  const auto others = alone->parameters();
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].device(), accelerator.device());
    EXPECT_TRUE(torch::allclose(own[i].cpu(), others[i], 1e-12, 1e-12)) << i;
  }
}

TEST(SimRuntime, GradientsTravelOnAStreamOfTheirOwn) {
  accel::test::run_and_expect_success("sim_late_gradients", 2);
}

// Kernels of the process's own device, where it is not told what to record.
ACCEL_RANK_FUNCTION(sim_profiles) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
      ("accel-sim-profile-" + std::to_string(::getpid()));
  const auto trace_of = [&](const accel::ProfileOptions& options) {
    accel::Accelerator accelerator;
    auto profile = accelerator.profile(
        accel::ProfileOptions(options).output_trace_dir(folder));
    const auto x = torch::ones({3}, accelerator.device());
    EXPECT_EQ((x * 2).sum().item<float>(), 6);
    profile.stop();
    std::ifstream file(profile.files().at(0));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const std::string kernel = "\"cat\": \"kernel\", \"name\": \"aten::mul\"";
  using accel::ProfileActivity;
  const bool on_device = std::getenv("ACCELERATE_USE_CPU") == nullptr;
  const auto by_itself = trace_of({});
  EXPECT_EQ(contains(by_itself, kernel), on_device) << by_itself;
  EXPECT_TRUE(contains(by_itself, "\"cat\": \"cpu_op\", \"name\": \"aten::mul\"")) << by_itself;
  EXPECT_FALSE(contains(
      trace_of(accel::ProfileOptions().activities({ProfileActivity::kCPU})), kernel));
  const auto only_kernels =
      trace_of(accel::ProfileOptions().activities({ProfileActivity::kPrivateUse1}));
  EXPECT_EQ(contains(only_kernels, kernel), on_device) << only_kernels;
  EXPECT_FALSE(contains(only_kernels, "cpu_op"));
  std::filesystem::remove_all(folder);
}

TEST(SimRuntime, ProfilesHaveTheDevicesKernels) {
  accel::test::run_and_expect_success("sim_profiles", 1);
  accel::test::RunOptions on_cpu;
  on_cpu.environment["ACCELERATE_USE_CPU"] = "1";
  accel::test::run_and_expect_success("sim_profiles", 1, on_cpu);
}
