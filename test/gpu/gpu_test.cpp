// What only a GPU can show, or a device that behaves as one: the same source is
// compiled for the simulated device (test/device). Each suite says which machine
// it needs, and skips on others:
//   Gpu        one GPU, one process
//   SharedGpu  one GPU, two processes (Gloo carries the tensors)
//   Nccl       two GPUs and more, a process for each (NCCL, or the simulated
//              device's backend)
//   NcclOnOneGpu  one GPU, two processes (NCCL, which takes them for processes of
//              two hosts)
//   NcclLibrary  no GPU, but a LibTorch with CUDA: libaccel_nccl is loaded
// Training is compared with plain LibTorch on the CPU in float64: the same
// program, so equal but for the order of additions.

#include "../runtime/exchanges.h"
#include "../runtime/expectations.h"
#include "../runtime/multiprocess.h"

#include <accel/accel.h>

#ifdef ACCEL_WITH_NCCL
#include "device/accelerator.h"
#include "device/backend.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#endif

#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <unistd.h>

using accel::AcceleratorOptions;
using accel::MixedPrecision;
using accel::test::contains;

namespace {

constexpr int64_t kSteps = 12;
constexpr int64_t kSamples = 22; // the last batch is short

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(4, 16))),
        norm(register_module("norm", torch::nn::BatchNorm1d(16))),
        last(register_module("last", torch::nn::Linear(16, 1))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return last->forward(torch::tanh(norm->forward(first->forward(x))));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

torch::Tensor inputs() {
  return torch::arange(kSamples * 4, torch::kDouble)
      .mul(0.37)
      .sin()
      .reshape({-1, 4});
}

std::pair<int64_t, int64_t> rows_of(int64_t step) {
  const int64_t begin = step % 3 * 8;
  return {begin, std::min(begin + 8, kSamples)};
}

/// Plain LibTorch, on the CPU.
std::vector<double> train_alone() {
  torch::manual_seed(3);
  Net net;
  net->to(torch::kDouble);
  torch::optim::Adam optimizer(
      net->parameters(),
      torch::optim::AdamOptions(0.05));
  const auto x = inputs();
  const auto y = x.pow(2).sum(1, true);
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto [begin, end] = rows_of(step);
    const auto loss = torch::mse_loss(
        net->forward(x.slice(0, begin, end)),
        y.slice(0, begin, end));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

/// The same on all processes and their GPUs. Returns the losses of all; in
/// `scales` the gradient scaler's, where there is one.
std::vector<double> train_together(
    accel::Accelerator& accelerator,
    torch::ScalarType dtype,
    std::vector<double>* scales = nullptr) {
  torch::manual_seed(3);
  Net net;
  net->to(dtype);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      net->parameters(),
      torch::optim::AdamOptions(0.05));
  accelerator.prepare(net, optimizer);
  EXPECT_EQ(net->last->weight.device(), accelerator.device());
  const auto host = inputs().to(dtype);
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    auto guard = accelerator.accumulate(net);
    const auto [begin, end] = rows_of(step);
    // From memory that is not pinned, while the device works.
    auto data = accelerator.send_to_device(
        host.slice(0, begin, end).clone(),
        /*non_blocking=*/true);
    auto target = data.pow(2).sum(1, true);
    data = accelerator.distribute(data);
    target = accelerator.distribute(target);
    const auto loss = torch::mse_loss(net->forward(data).to(dtype), target);
    optimizer.zero_grad();
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(net->parameters(), 1e6);
    optimizer.step();
    losses.push_back(loss.item<double>());
    if (scales != nullptr) {
      scales->push_back(accelerator.scaler()->get_scale());
    }
  }
  return losses;
}

void expect_trains_as_alone() {
  const auto alone = train_alone();
  accel::Accelerator accelerator(
      AcceleratorOptions().match_single_device(true));
  ASSERT_FALSE(accelerator.device().is_cpu()) << accelerator.device();
  const auto together = train_together(accelerator, torch::kDouble);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(together[i], alone[i], 1e-9 * std::abs(alone[i]))
        << "step " << i;
  }
}

void try_operations() {
  accel::Accelerator accelerator;
  const auto device = accelerator.device();
  const int64_t rank = accelerator.process_index();
  const int64_t count = accelerator.num_processes();
  for (const auto type :
       {torch::kFloat,
        torch::kDouble,
        torch::kHalf,
        torch::kBFloat16,
        torch::kLong}) {
    for (const auto where : {device, torch::Device(torch::kCPU)}) {
      const auto options = torch::TensorOptions().dtype(type).device(where);
      const auto mine = torch::full({3, 2}, rank + 1, options);
      EXPECT_TRUE(torch::equal(
          accelerator.reduce(mine.t()),
          torch::full({2, 3}, count * (count + 1) / 2, options)));
      EXPECT_TRUE(torch::equal(
          accelerator.gather(mine.slice(0, 0, 1)).select(1, 0),
          torch::arange(1, count + 1, options)));
      EXPECT_TRUE(torch::equal(
          accelerator.broadcast(mine.clone(), count - 1),
          torch::full({3, 2}, count, options)));
    }
  }
  for (const auto channel :
       {accel::detail::Channel::kMain, accel::detail::Channel::kOperators}) {
    for (const auto type : {torch::kBool, torch::kBFloat16, torch::kDouble}) {
      for (const int64_t numbers : {0, 1, 1000}) {
        accel::test::expect_exchange(
            accel::detail::communicator(channel),
            torch::TensorOptions().dtype(type).device(device),
            numbers);
      }
    }
  }
  // A contiguous tensor whose only stride is not 1.
  const auto one = torch::full({2, 4}, rank, device).select(1, 0).slice(0, 0, 1);
  EXPECT_EQ(one.stride(0), 4);
  EXPECT_EQ(
      accelerator.gather(one).sum().item<int64_t>(), count * (count - 1) / 2);
  EXPECT_EQ(accelerator.broadcast(one).item<int64_t>(), 0);
  const auto flags = torch::full({2}, rank == 0, device);
  EXPECT_EQ(accelerator.gather(flags).sum().item<int64_t>(), 2);
  EXPECT_EQ(
      accelerator.gather_object(std::vector<int64_t>{rank}).back(),
      count - 1);
  // A tensor on the host of one and on the device of another.
  bool refused = false;
  try {
    accelerator.reduce(
        torch::ones({1}, rank == 0 ? device : torch::Device(torch::kCPU)));
  } catch (const c10::Error& error) {
    refused = contains(error.what(), "same kind of device");
  }
  EXPECT_TRUE(refused);
  accelerator.wait_for_everyone();
}

} // namespace

// ---- No GPU.

#ifdef ACCEL_WITH_NCCL
TEST(NcclLibrary, FitsLibTorchAndCallsCuda) {
  // Loaded with all symbols, of accel's version and of LibTorch's NCCL.
  ASSERT_EQ(accel::detail::why_no_backend(c10::kCUDA), "");
  const auto& library = accel::detail::backend_for(c10::kCUDA);
  const c10::Device first(c10::kCUDA, 0);
  if (accel::detail::count_devices(c10::kCUDA) > 0) {
    EXPECT_TRUE(contains(library.identity(first), "GPU-"));
    return;
  }
  // CUDA's errors are LibTorch's exceptions.
  EXPECT_THROW(library.identity(first), c10::Error);
  accel::detail::DeviceGroupRequest request;
  request.store = c10::make_intrusive<c10d::HashStore>();
  request.device = first;
  request.timeout = std::chrono::seconds(5);
  EXPECT_THROW(library.make(request), c10::Error);
}
#endif

// ---- One GPU, one process.

ACCEL_RANK_FUNCTION(gpu_trains_as_alone) {
  expect_trains_as_alone();
}

/// Of the whole batch, whoever draws them: dropout and noise.
std::vector<double> train_with_noise(bool alone) {
  accel::Accelerator accelerator(
      AcceleratorOptions().match_single_device(true));
  torch::manual_seed(4);
  torch::nn::Sequential net(
      torch::nn::Linear(4, 16),
      torch::nn::Tanh(),
      torch::nn::Dropout(0.3),
      torch::nn::Linear(16, 1));
  net->to(torch::kDouble);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
      net->parameters(),
      torch::optim::AdamOptions(0.05));
  accelerator.prepare(net, optimizer);
  const auto host = inputs();
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    auto guard = accelerator.accumulate(net);
    const auto [begin, end] = rows_of(step);
    auto data = accelerator.send_to_device(host.slice(0, begin, end));
    if (!alone) {
      data = accelerator.distribute(data);
    }
    auto noisy = data + 0.1 * torch::randn_like(data);
    const auto loss = net->forward(noisy).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  losses.push_back(
      torch::rand({1}, accelerator.device()).to(torch::kDouble).item<double>());
  return losses;
}

/// All processes train the whole batches, and then their parts of them.
ACCEL_RANK_FUNCTION(gpu_noise) {
  const auto alone = train_with_noise(true);
  const auto together = train_with_noise(false);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(together[i], alone[i], 1e-9 * std::abs(alone[i])) << i;
  }
}

ACCEL_RANK_FUNCTION(gpu_mixed_precision) {
  for (const auto precision : {MixedPrecision::kBF16, MixedPrecision::kFP16}) {
    accel::Accelerator accelerator(
        AcceleratorOptions()
            .match_single_device(true)
            .mixed_precision(precision)
            .grad_scaler(
                accel::GradScalerOptions().init_scale(65536).growth_interval(
                    4)));
    std::vector<double> scales;
    const auto losses = train_together(
        accelerator,
        torch::kFloat,
        precision == MixedPrecision::kFP16 ? &scales : nullptr);
    EXPECT_LT(losses.back(), losses.front());
    const auto alone = train_alone();
    EXPECT_NEAR(losses.front(), alone.front(), 0.02 * alone.front());
    if (precision == MixedPrecision::kFP16) {
      EXPECT_GT(scales.back(), 0);
      const auto [least, most] =
          std::minmax_element(scales.begin(), scales.end());
      EXPECT_LT(*least, *most) << "it never grew nor backed off";
    }
  }
}

/// Optimizer states, and with several processes parts of parameters and gradients, on the
/// host between steps: the same losses.
std::vector<double> train_offloaded(bool offloads) {
  const bool divides = std::string(std::getenv("WORLD_SIZE")) != "1";
  auto plugin = accel::DeepSpeedPlugin().zero_stage(divides ? 3 : 0);
  if (offloads) {
    plugin.offload_optimizer_device("cpu");
    plugin.offload_param_device(divides ? "cpu" : "none");
  }
  accel::Accelerator accelerator(
      AcceleratorOptions().match_single_device(true).deepspeed_plugin(plugin));
  torch::manual_seed(4);
  torch::nn::Sequential net(
      torch::nn::Linear(4, 256), torch::nn::Tanh(), torch::nn::Linear(256, 256),
      torch::nn::Tanh(), torch::nn::Linear(256, 1));
  accel::AcceleratedOptimizer<torch::optim::AdamW> optimizer(
      net->parameters(), torch::optim::AdamWOptions(0.01));
  accelerator.prepare(net, optimizer);
  const auto host = inputs().to(torch::kFloat);
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto [begin, end] = rows_of(step);
    const auto data = accelerator.distribute(
        accelerator.send_to_device(host.slice(0, begin, end)));
    const auto loss = (net->forward(data) - 1).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

ACCEL_RANK_FUNCTION(gpu_offload) {
  const auto here = train_offloaded(false), offloaded = train_offloaded(true);
  EXPECT_LT(here.back(), here.front());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_NEAR(offloaded[i], here[i], 1e-5 * std::abs(here[i])) << i;
  }
}

ACCEL_RANK_FUNCTION(gpu_checkpoint) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("accel-gpu-" + std::to_string(::getpid()));
  {
    accel::Accelerator accelerator;
    Net net;
    accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(
        net->parameters(),
        torch::optim::AdamOptions(0.05));
    accelerator.prepare(net, optimizer);
    const auto step = [&] {
      const auto x = torch::rand({8, 4}, accelerator.device());
      optimizer.zero_grad();
      accelerator.backward(net->forward(x).pow(2).mean());
      optimizer.step();
      return net->last->weight.detach().clone();
    };
    step();
    accelerator.save_state(folder.string());
    const auto next = step(); // draws from the GPU's generator
    accelerator.load_state(folder.string());
    EXPECT_TRUE(torch::equal(step(), next));
  }
  std::filesystem::remove_all(folder);
}

/// A static Accelerator, which ends when the process does, after the current streams
/// of its threads.
ACCEL_RANK_FUNCTION(gpu_ends_with_the_process) {
  static accel::Accelerator accelerator(
      AcceleratorOptions().match_single_device(true));
  const auto losses = train_together(accelerator, torch::kFloat);
  EXPECT_LT(losses.back(), losses.front());
  std::exit(::testing::Test::HasFailure() ? 1 : 0);
}

int devices() {
  return at::getAccelerator() ? at::accelerator::deviceCount() : 0;
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices() < 1) {
      GTEST_SKIP() << "needs a GPU";
    }
  }
};
class SharedGpu : public Gpu {};
class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices() < 2) {
      GTEST_SKIP() << "needs two GPUs, found " << devices();
    }
  }
};

TEST_F(Gpu, TrainsAsTheCpuDoes) {
  accel::test::run_and_expect_success("gpu_trains_as_alone", 1);
}
TEST_F(Gpu, TrainsInMixedPrecision) {
  accel::test::run_and_expect_success("gpu_mixed_precision", 1);
}
TEST_F(Gpu, KeepsStatesOnTheHost) {
  accel::test::run_and_expect_success("gpu_offload", 1);
}
TEST_F(Gpu, GoesOnFromACheckpoint) {
  accel::test::run_and_expect_success("gpu_checkpoint", 1);
}

TEST_F(Gpu, EndsWithTheProcess) {
  accel::test::run_and_expect_success("gpu_ends_with_the_process", 1);
}

// ---- One GPU, two processes.

ACCEL_RANK_FUNCTION(gpu_operations) {
  try_operations();
}

static accel::test::RunOptions sharing() {
  accel::test::RunOptions options;
  options.environment["ACCEL_BACKEND"] = "gloo";
  return options;
}

TEST_F(SharedGpu, CarriesAllTensors) {
  accel::test::run_and_expect_success("gpu_operations", 2, sharing());
}
TEST_F(SharedGpu, TwoTrainAsOneDoes) {
  accel::test::run_and_expect_success("gpu_trains_as_alone", 2, sharing());
}
TEST_F(SharedGpu, NcclIsRefusedByName) {
  accel::test::RunOptions options;
  options.environment["CUDA_VISIBLE_DEVICES"] = "0";
  options.environment["ACCEL_SIM_DEVICES"] = "1";
  for (const auto& result : accel::test::run("gpu_operations", 2, options)) {
    EXPECT_NE(result.exit_code, 0);
    EXPECT_TRUE(
        contains(result.output + result.error, "compute on the same device"))
        << result.output << result.error;
  }
}

// ---- Two GPUs and more, a process for each.

// Process 1 is killed while process 0 waits for it on its GPU.
ACCEL_RANK_FUNCTION(gpu_process_dies) {
  accel::Accelerator accelerator;
  auto value = torch::ones({1 << 20}, accelerator.device());
  accelerator.reduce(value);
  if (accelerator.process_index() == 1) {
    ::kill(::getpid(), SIGKILL);
  }
  accelerator.reduce(value);
}

/// On two GPUs, and on four where there are so many.
static void run_on_several(const std::string& function) {
  for (const int count : {2, 4}) {
    if (count <= devices()) {
      accel::test::run_and_expect_success(function, count);
    }
  }
}

// Process 1 is killed while process 0 waits for it.
static void expect_no_hang(accel::test::RunOptions options) {
  options.timeout = std::chrono::seconds(90);
  const auto results = accel::test::run("gpu_process_dies", 2, options);
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_FALSE(results[0].timed_out) << results[0].output << results[0].error;
  EXPECT_FALSE(results[0].success());
}

TEST_F(Nccl, CarriesAllTensors) {
  run_on_several("gpu_operations");
}
TEST_F(Nccl, SeveralTrainAsOneDoes) {
  run_on_several("gpu_trains_as_alone");
}
TEST_F(Nccl, EndsWithTheProcess) {
  run_on_several("gpu_ends_with_the_process");
}
TEST_F(Nccl, SeveralDrawTheNumbersOfOne) {
  run_on_several("gpu_noise");
}
TEST_F(Nccl, DoesNotHangWhereAProcessDies) {
  expect_no_hang({});
}

// ---- NCCL, on one GPU.

#ifdef ACCEL_WITH_NCCL
/// NCCL refuses two processes of one host on one GPU: makes each a host of its own.
/// All that they exchange goes through sockets then.
static accel::test::RunOptions own_hosts() {
  accel::test::RunOptions options;
  options.environment["NCCL_HOSTID"] = "host%";
  options.environment["NCCL_SOCKET_IFNAME"] = "lo";
  return options;
}

class NcclOnOneGpu : public Gpu {};
TEST_F(NcclOnOneGpu, CarriesAllTensors) {
  accel::test::run_and_expect_success("gpu_operations", 2, own_hosts());
}
TEST_F(NcclOnOneGpu, TwoTrainAsOneDoes) {
  accel::test::run_and_expect_success("gpu_trains_as_alone", 2, own_hosts());
}
TEST_F(NcclOnOneGpu, EndsWithTheProcess) {
  accel::test::run_and_expect_success("gpu_ends_with_the_process", 2, own_hosts());
}
TEST_F(NcclOnOneGpu, TwoDrawTheNumbersOfOne) {
  accel::test::run_and_expect_success("gpu_noise", 2, own_hosts());
}
TEST_F(NcclOnOneGpu, TwoTrainInMixedPrecision) {
  accel::test::run_and_expect_success("gpu_mixed_precision", 2, own_hosts());
}
TEST_F(NcclOnOneGpu, TwoKeepPartsOnTheHost) {
  accel::test::run_and_expect_success("gpu_offload", 2, own_hosts());
}
TEST_F(NcclOnOneGpu, DoesNotHangWhereAProcessDies) {
  expect_no_hang(own_hosts());
}
#endif
