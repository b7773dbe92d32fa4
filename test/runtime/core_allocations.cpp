// What a training step with accel takes from the heap beyond what the same step
// without it takes: nothing that grows with the number of parameters.

#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

// Sanitizers have an operator new of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::atomic<int64_t> allocations{0};

void* counted(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}

} // namespace

// LibTorch's libraries use these, too.
void* operator new(size_t size) {
  return counted(size);
}
void* operator new[](size_t size) {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace {

torch::nn::Sequential small_layers(int layers) {
  torch::nn::Sequential net;
  for (int i = 0; i < layers; ++i) {
    net->push_back(torch::nn::Linear(4, 4));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

/// Allocations of one call of `step`, when it has been called a few times; the
/// least of several, since other threads allocate, too.
template <typename Step>
int64_t allocations_of(const Step& step) {
  for (int i = 0; i < 4; ++i) {
    step();
  }
  int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = allocations;
    step();
    least = std::min<int64_t>(least, allocations - before);
  }
  return least;
}

/// How many more a step has with accel than without.
int64_t more_with_accel(accel::Accelerator& accelerator, int layers) {
  const auto input = torch::randn({2, 4});
  auto plain_net = small_layers(layers);
  auto net = small_layers(layers);
  torch::optim::SGD plain_optimizer(plain_net->parameters(), 1e-3);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), 1e-3);
  accelerator.prepare(net, optimizer);
  const int64_t plain = allocations_of([&] {
    auto loss = plain_net->forward(input).pow(2).mean();
    plain_optimizer.zero_grad();
    loss.backward();
    plain_optimizer.step();
  });
  const int64_t with = allocations_of([&] {
    auto step = accelerator.accumulate(net);
    auto loss = net->forward(input).pow(2).mean();
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
  });
  EXPECT_GT(plain, 10 * layers) << "the counter does not count";
  accelerator.clear();
  return with - plain;
}

void expect_none_per_parameter(bool match_single_device) {
  accel::Accelerator accelerator(
      accel::AcceleratorOptions().cpu(true).match_single_device(
          match_single_device));
  const int64_t few = more_with_accel(accelerator, 20);
  const int64_t many = more_with_accel(accelerator, 120);
  std::cout << "more with accel: " << few << " with 40 parameters, " << many
            << " with 240" << std::endl;
  // Two per layer.
  EXPECT_LE(many - few, 20) << "of 200 parameters more";
}

} // namespace

ACCEL_RANK_FUNCTION(counts_allocations) {
  expect_none_per_parameter(false);
  expect_none_per_parameter(true);
}

TEST(Allocations, NonePerParameterAndStep) {
  for (const int processes : {1, 2}) {
    const auto results =
        accel::test::run_and_expect_success("counts_allocations", processes);
    std::cout << processes << ": " << results[0].output;
  }
}

#endif
