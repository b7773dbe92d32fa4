// The simulated device: what it does, and that it finds what is wrong.
//
//   SimDevice   computes as the CPU does
//   SimFaults   each way in which a program can use a device wrongly is found

#include "sim/sim.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

namespace sim = accel::sim;

namespace {

const c10::impl::VirtualGuardImpl& guard() {
  static const c10::impl::VirtualGuardImpl impl(sim::kSim);
  return impl;
}

torch::Tensor on(c10::DeviceIndex index, const torch::Tensor& tensor) {
  return tensor.to(sim::device(index));
}

torch::Tensor numbers(torch::IntArrayRef sizes) {
  int64_t count = 1;
  for (const auto size : sizes) {
    count *= size;
  }
  return torch::arange(count, torch::kDouble).mul(0.37).sin().reshape(sizes);
}

/// Late work comes after so long.
struct Latency {
  explicit Latency(int milliseconds) {
    sim::set_latency(std::chrono::milliseconds(milliseconds));
  }
  ~Latency() {
    sim::set_latency(std::chrono::microseconds(200));
  }
};

/// All numbers of what `compute` makes are those of the CPU.
template <typename Compute>
void expect_as_on_cpu(const char* what, Compute&& compute) {
  const auto cpu = compute(torch::Device(torch::kCPU));
  const auto device = compute(sim::device(1));
  ASSERT_EQ(cpu.size(), device.size());
  for (size_t i = 0; i < cpu.size(); ++i) {
    ASSERT_EQ(device[i].device(), sim::device(1)) << what << ", tensor " << i;
    EXPECT_TRUE(torch::allclose(device[i].cpu(), cpu[i], 1e-12, 1e-12))
        << what << ", tensor " << i << "\n"
        << device[i].cpu() << "\n"
        << cpu[i];
  }
}

/// Forward and backward of a module on both; the values come from the CPU.
template <typename Module>
void expect_module_as_on_cpu(const char* what, Module module, const torch::Tensor& x) {
  module->to(torch::kDouble);
  expect_as_on_cpu(what, [&](torch::Device device) {
    auto copy = std::dynamic_pointer_cast<typename Module::Impl>(module->clone(device));
    auto input = x.to(device).detach().requires_grad_();
    std::vector<torch::Tensor> all;
    torch::Tensor output;
    if constexpr (std::is_same_v<Module, torch::nn::LSTM>) {
      output = std::get<0>(copy->forward(input));
    } else if constexpr (std::is_same_v<Module, torch::nn::GRU>) {
      output = std::get<0>(copy->forward(input));
    } else {
      output = copy->forward(input);
    }
    output.pow(2).sum().backward();
    all.push_back(output.detach());
    all.push_back(input.grad());
    for (const auto& parameter : copy->parameters()) {
      all.push_back(parameter.grad());
    }
    return all;
  });
}

} // namespace

TEST(SimDevice, LibTorchKnowsIt) {
  EXPECT_EQ(at::getAccelerator().value(), sim::kSim);
  EXPECT_EQ(at::accelerator::deviceCount(), 2);
  EXPECT_EQ(torch::Device("sim:1"), sim::device(1));
  EXPECT_EQ(sim::device(1).str(), "sim:1");
}

TEST(SimDevice, ComputesAsTheCpuDoes) {
  torch::manual_seed(1);
  expect_module_as_on_cpu("linear", torch::nn::Linear(6, 4), numbers({5, 6}));
  expect_module_as_on_cpu(
      "conv",
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)),
      numbers({2, 3, 8, 8}));
  expect_module_as_on_cpu("batch norm", torch::nn::BatchNorm1d(6), numbers({5, 6}));
  expect_module_as_on_cpu(
      "layer norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})), numbers({5, 6}));
  expect_module_as_on_cpu("lstm", torch::nn::LSTM(6, 5), numbers({4, 3, 6}));
  expect_module_as_on_cpu("gru", torch::nn::GRU(6, 5), numbers({4, 3, 6}));
  expect_as_on_cpu("functions", [](torch::Device device) {
    const auto x = numbers({4, 6}).to(device);
    const auto long_rows = torch::tensor({3, 0, 2}).to(device);
    auto written = torch::zeros({4, 6}, x.options());
    written.index_put_({long_rows}, x.slice(0, 0, 3));
    written.slice(1, 2, 4).add_(1);
    auto out = torch::empty({0}, x.options());
    torch::mul_out(out, x, x);
    return std::vector<torch::Tensor>{
        x.t().contiguous(),
        x.index({long_rows}),
        x.masked_select(x > 0),
        x.nonzero().to(torch::kDouble),
        std::get<0>(x.sort(1)),
        torch::cat({x, x * 2}, 1),
        x.unfold(1, 3, 2).clone(),
        x.chunk(2, 1)[1].clone(),
        torch::matmul(x, x.t()),
        x.log_softmax(1),
        written,
        out,
        torch::arange(5, x.options()),
        std::get<0>(x.max(0)),
        x.std(0)};
  });
}

TEST(SimDevice, SparseAndQuantizedTensors) {
  expect_as_on_cpu("layouts", [](torch::Device device) {
    const auto x = numbers({4, 6}).to(device);
    const auto indices = torch::tensor({0, 2, 2, 1, 5, 5}).view({2, 3}).to(device);
    auto sparse = torch::sparse_coo_tensor(indices, x.flatten().slice(0, 0, 3), {4, 6});
    EXPECT_EQ(sparse.device(), device);
    EXPECT_FALSE(sparse.is_coalesced());
    auto dense = x.clone();
    dense.add_(sparse, -2);
    auto both = x.to_sparse() + sparse;
    both.mul_(3);
    auto table = x.clone().requires_grad_();
    torch::embedding(table, indices.remainder(4), -1, false, /*sparse=*/true).pow(2).sum().backward();
    EXPECT_TRUE(table.grad().is_sparse());
    const auto quantized = torch::quantize_per_tensor(x.to(torch::kFloat), 0.1, 3, torch::kQInt8);
    EXPECT_EQ(quantized.device(), device);
    return std::vector<torch::Tensor>{
        sparse.to_dense(),
        sparse.coalesce().values(),
        sparse.coalesce().indices().to(torch::kDouble),
        sparse.clone().to_dense(),
        dense,
        both.to_dense(),
        torch::mm(sparse, x.t()),
        torch::mm(x.to_sparse_csr(), x.t()),
        x.to_sparse_csr().crow_indices().to(torch::kDouble),
        table.grad().to_dense(),
        quantized.dequantize().to(torch::kDouble),
        quantized.int_repr().to(torch::kDouble)};
  });
  // There and back, as it was.
  const auto sparse = numbers({3, 3}).relu().to_sparse();
  const auto there = on(1, sparse);
  EXPECT_EQ(there.device(), sim::device(1));
  EXPECT_TRUE(torch::equal(there.cpu().to_dense(), sparse.to_dense()));
}

TEST(SimDevice, OptimizersStepAsOnTheCpu) {
  expect_as_on_cpu("adam", [](torch::Device device) {
    torch::manual_seed(2);
    torch::nn::Sequential model(
        torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
    model->to(device, torch::kDouble);
    torch::optim::Adam optimizer(model->parameters(), 0.05);
    const auto x = numbers({12, 6}).to(device);
    const auto target = torch::arange(12).remainder(3).to(device);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(model->forward(x), target).backward();
      optimizer.step();
    }
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model->parameters()) {
      all.push_back(parameter.detach());
    }
    return all;
  });
}

TEST(SimDevice, KernelsRunLaterAndInOrder) {
  const Latency latency(30);
  const auto side = guard().getNewStream(sim::device(0));
  const auto start = std::chrono::steady_clock::now();
  torch::Tensor y;
  {
    const c10::StreamGuard on_side(side);
    y = torch::ones({3}, sim::device(0));
    for (int i = 0; i < 3; ++i) {
      y = y * 2;
    }
  }
  // The host has gone on.
  EXPECT_LT(
      std::chrono::steady_clock::now() - start, std::chrono::milliseconds(25));
  EXPECT_FALSE(guard().queryStream(side));
  c10::Event done(sim::kSim);
  done.record(side);
  EXPECT_FALSE(done.query());
  done.block(guard().getStream(sim::device(0)));
  EXPECT_EQ(y.sum().item<double>(), 24);
  EXPECT_TRUE(done.query());
}

TEST(SimDevice, EachThreadHasItsDeviceAndEachDeviceItsStream) {
  const c10::DeviceGuard on_one(sim::device(1));
  EXPECT_EQ(torch::ones({2}, torch::Device(sim::kSim)).device(), sim::device(1));
  std::thread([] {
    EXPECT_EQ(guard().getDevice(), sim::device(0));
  }).join();
  const auto before = sim::work_given(guard().getDefaultStream(sim::device(0)));
  torch::ones({2}, torch::Device(sim::kSim)).add_(1);
  EXPECT_EQ(sim::work_given(guard().getDefaultStream(sim::device(0))), before);
}

TEST(SimDevice, CopiesBetweenDevicesWaitForBoth) {
  const auto x = numbers({100});
  const auto there = on(0, x) * 3;
  const auto here = there.to(sim::device(1), /*non_blocking=*/true);
  EXPECT_TRUE(torch::equal((here + 1).cpu(), x * 3 + 1));
}

TEST(SimDevice, RandomNumbersAreTheDevicesOwn) {
  torch::manual_seed(5);
  const auto cpu = torch::rand({4});
  const auto a = torch::rand({4}, sim::device(0)).cpu();
  const auto other_device = torch::rand({4}, sim::device(1)).cpu();
  const auto second = torch::rand({4}, sim::device(0)).cpu();
  EXPECT_FALSE(torch::equal(cpu, a));
  EXPECT_TRUE(torch::equal(other_device, a)) << "seeded alike";
  EXPECT_FALSE(torch::equal(second, a));
  // What was drawn can be skipped, and the state kept.
  auto generator = at::globalContext().defaultGenerator(sim::device(0));
  const auto state = generator.get_state();
  const auto third = torch::rand({4}, sim::device(0)).cpu();
  generator.set_state(state);
  EXPECT_TRUE(torch::equal(torch::rand({4}, sim::device(0)).cpu(), third));
  generator.set_current_seed(5);
  generator.set_offset(4);
  EXPECT_TRUE(torch::equal(torch::rand({4}, sim::device(0)).cpu(), second));
}

TEST(SimDevice, AutocastComputesInHalf) {
  const auto x = on(0, torch::ones({2, 3}));
  at::autocast::set_autocast_enabled(sim::kSim, true);
  at::autocast::set_autocast_dtype(sim::kSim, torch::kHalf);
  const auto product = torch::mm(x, x.t());
  const auto sum = product.softmax(1);
  at::autocast::set_autocast_enabled(sim::kSim, false);
  EXPECT_EQ(product.scalar_type(), torch::kHalf);
  EXPECT_EQ(sum.scalar_type(), torch::kFloat);
}

TEST(SimDevice, MemoryIsCounted) {
  auto* allocator = c10::getDeviceAllocator(sim::kSim);
  const auto index = c10::DeviceIndex(1);
  const auto before = allocator->getDeviceStats(index).allocated_bytes[0].current;
  auto x = torch::empty({1 << 20}, torch::Device(sim::device(index)));
  EXPECT_EQ(
      allocator->getDeviceStats(index).allocated_bytes[0].current,
      before + (4 << 20));
  x.reset();
  EXPECT_EQ(
      allocator->getDeviceStats(index).allocated_bytes[0].current, before);
  const auto free = allocator->getMemoryInfo(index).first;
  allocator->emptyCache();
  EXPECT_GE(allocator->getMemoryInfo(index).first, free + (4 << 20));
}

// ==== What is wrong is found

TEST(SimFaultsDeathTest, TheHostTouchesMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const auto x = on(0, torch::ones({3}));
        volatile float value = x.data_ptr<float>()[1];
        (void)value;
      },
      "sim:0: the host touches memory of the device, .* after aten::");
  EXPECT_DEATH(
      {
        // A kernel of the host's that is given a device's memory.
        const auto x = on(1, torch::ones({3}));
        const auto y = torch::from_blob(x.data_ptr(), {3}, torch::kFloat);
        y.add_(1);
      },
      "sim:1: the host touches memory of the device, .* in operator aten::add_");
}

TEST(SimFaults, ATensorLeftOnTheCpu) {
  const auto x = on(0, torch::ones({3}));
  try {
    x + torch::ones({3});
    FAIL() << "found nothing";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("sim:0 and cpu"), std::string::npos)
        << error.what();
  }
  try {
    torch::nll_loss(x.unsqueeze(0), torch::zeros({1}, torch::kLong));
    FAIL() << "found nothing";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("in operator aten::nll_loss"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(on(1, torch::ones({3})) + x, c10::Error);
  // As on a GPU, a number of the host's is no such fault.
  EXPECT_EQ((x + torch::ones({})).sum().item<float>(), 6);
}

TEST(SimFaults, AMissingWaitBetweenStreams) {
  const Latency latency(20);
  const auto side = guard().getNewStream(sim::device(0));
  const auto compute = [&](double value, bool waits) {
    torch::Tensor y;
    {
      const c10::StreamGuard on_side(side);
      y = torch::full({4}, value, torch::dtype(torch::kDouble).device(sim::device(0)));
    }
    if (waits) {
      c10::Event done(sim::kSim);
      done.record(side);
      done.block(guard().getStream(sim::device(0)));
    }
    const auto sum = (y + 1).sum().item<double>();
    guard().synchronizeStream(side);
    return sum;
  };
  EXPECT_EQ(compute(1, true), 8);
  EXPECT_NE(compute(3, false), 16);
}

TEST(SimFaults, MemoryThatAnotherStreamStillUses) {
  const Latency latency(20);
  const auto side = guard().getNewStream(sim::device(0));
  const auto compute = [&](bool says_so) {
    auto x = torch::ones({4}, torch::dtype(torch::kDouble).device(sim::device(0)));
    guard().synchronizeStream(guard().getStream(sim::device(0)));
    torch::Tensor y;
    {
      const c10::StreamGuard on_side(side);
      y = x + 1;
    }
    if (says_so) {
      x.record_stream(side);
    }
    x.reset();
    guard().synchronizeStream(side);
    return y.sum().item<double>();
  };
  EXPECT_EQ(compute(true), 8);
  EXPECT_NE(compute(false), 8);
}

TEST(SimFaults, ACopyFromPinnedMemoryTakenAsDone) {
  const Latency latency(20);
  const auto compute = [&](bool waits) {
    auto host = torch::ones({4}, torch::kDouble).pin_memory();
    const auto x = host.to(sim::device(0), /*non_blocking=*/true);
    if (waits) {
      guard().synchronizeStream(guard().getStream(sim::device(0)));
    }
    host.fill_(7);
    return x.sum().item<double>();
  };
  EXPECT_EQ(compute(true), 4);
  EXPECT_NE(compute(false), 4);
}

TEST(SimFaults, ACopyToPinnedMemoryTakenAsDone) {
  const Latency latency(20);
  const auto x = on(0, torch::ones({4}, torch::kDouble));
  auto host = torch::zeros({4}, torch::kDouble).pin_memory();
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_EQ(host.sum().item<double>(), 0);
  guard().synchronizeStream(guard().getStream(sim::device(0)));
  EXPECT_EQ(host.sum().item<double>(), 4);
  // Memory that is not pinned is complete at once.
  EXPECT_EQ(x.to(torch::kCPU).sum().item<double>(), 4);
}

TEST(SimFaults, PinnedMemoryIsNotGivenOutWhileItIsCopied) {
  const Latency latency(20);
  auto host = torch::ones({4096}, torch::kDouble).pin_memory();
  const auto x = host.to(sim::device(0), /*non_blocking=*/true);
  host.reset();
  auto next = torch::full({4096}, 9, torch::kDouble).pin_memory();
  EXPECT_EQ(x.sum().item<double>(), 4096);
}

TEST(SimFaults, NewMemoryIsNotZero) {
  // Of a size that nothing else has here.
  const auto x = torch::empty({777}, torch::dtype(torch::kDouble).device(sim::device(0)));
  EXPECT_TRUE(std::isnan(x.sum().item<double>()));
}

TEST(SimFaults, AForgottenDeviceGuard) {
  // Memory, streams and events of the device that is current, which is 0.
  const c10::DeviceGuard on_zero(sim::device(0));
  const auto x = on(1, torch::ones({3}));
  const auto buffer = torch::empty({3}, torch::Device(sim::kSim));
  EXPECT_THROW(buffer + x, c10::Error);
  c10::Event event(sim::kSim);
  event.record(guard().getStream(sim::device(0)));
  EXPECT_THROW(event.record(guard().getStream(sim::device(1))), c10::Error);
}

TEST(SimFaults, AFailedKernelIsSeenLaterAndStays) {
  auto table = on(1, torch::ones({3}));
  const auto wrong = on(1, torch::tensor({0, 9}));
  torch::Tensor picked;
  ASSERT_NO_THROW(picked = table.gather(0, wrong));
  EXPECT_THROW(guard().synchronizeStream(guard().getStream(sim::device(1))), c10::Error);
  EXPECT_NE(sim::failure(1).find("aten::gather"), std::string::npos)
      << sim::failure(1);
  EXPECT_THROW(table.add_(1), c10::Error);
  EXPECT_THROW(picked.cpu(), c10::Error);
  sim::repair(1);
  EXPECT_EQ(table.add_(1).sum().item<float>(), 6);
}

TEST(SimFaults, MemoryHasALimit) {
  sim::set_memory_limit(1, 1 << 20);
  c10::getDeviceAllocator(sim::kSim)->emptyCache();
  EXPECT_THROW(
      torch::empty({1 << 20}, torch::Device(sim::device(1))), c10::OutOfMemoryError);
  // The other device has its own.
  EXPECT_NO_THROW(torch::empty({1 << 20}, torch::Device(sim::device(0))));
  sim::set_memory_limit(1, size_t{4} << 30);
}
