// Loops over a loader that are left before their end: nothing that the runtime
// knows about the last batch may stay behind.

#include "data_sets.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/gradient_state.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <stdexcept>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using accel::test::Numbers;
using accel::test::stacked;
using torch::data::samplers::SequentialSampler;

namespace {

const auto kMatch = AcceleratorOptions().match_single_device(true);

auto numbers_loader(size_t size, size_t batch) {
  return accel::data::make_data_loader<SequentialSampler>(
      stacked(Numbers(size)), batch);
}

/// What a program may do behind a loop, compared with the same on complete
/// batches of one device.
void expect_no_batch(Accelerator& accelerator, int64_t rows) {
  EXPECT_FALSE(GradientState::get().in_dataloader());
  EXPECT_FALSE(GradientState::get().end_of_dataloader());

  // The same numbers on all processes, as many as were asked for.
  const auto mark = accel::test::generator_state();
  const auto drawn = torch::rand({rows, 3});
  auto expected = at::detail::createCPUGenerator();
  expected.set_state(mark);
  EXPECT_TRUE(torch::equal(drawn, torch::rand({rows, 3}, expected)));

  // In float64: few rows may be all but equal, which makes rounding large.
  torch::nn::BatchNorm1d norm(3);
  norm->to(torch::kDouble);
  const auto output = norm->forward(drawn.to(torch::kDouble));
  EXPECT_LT(output.mean(0).abs().max().item<double>(), 1e-5);
  EXPECT_NEAR(
      norm->running_mean[0].item<double>(),
      0.1 * drawn.select(1, 0).mean().item<double>(),
      1e-6);
  // A batch of its own starts with a clean slate.
  {
    auto step = accelerator.accumulate();
    const auto part = accelerator.shard_batch(torch::arange(rows + 1));
    EXPECT_TRUE(torch::equal(
        accelerator.gather_for_metrics(part), torch::arange(rows + 1)));
  }
}

/// A complete pass gives what it always gives.
void expect_complete_pass(Accelerator& accelerator, int64_t size) {
  auto loader = numbers_loader(static_cast<size_t>(size), 4);
  std::vector<torch::Tensor> seen;
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate();
    seen.push_back(accelerator.gather_for_metrics(batch.target));
  }
  EXPECT_TRUE(torch::equal(torch::cat(seen), torch::arange(size)));
}

void train_until_return(
    Accelerator& accelerator,
    torch::data::StatelessDataLoader<
        decltype(stacked(Numbers(0))),
        SequentialSampler>& loader,
    bool throws) {
  for ([[maybe_unused]] auto& batch : loader) {
    auto step = accelerator.accumulate();
    if (throws) {
      throw std::runtime_error("left");
    }
    return;
  }
}

} // namespace

ACCEL_RANK_FUNCTION(loop_left_by_break) {
  Accelerator accelerator(kMatch);
  torch::manual_seed(3);
  // All loaders outlive their loops.
  auto loader = numbers_loader(13, 4);
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate();
    EXPECT_EQ(accelerator.global_batch_size(batch.data), 4);
    break;
  }
  expect_no_batch(accelerator, 2);
  expect_complete_pass(accelerator, 13);
  expect_no_batch(accelerator, 2);

  // In the last batch, of one row.
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate();
    if (GradientState::get().end_of_dataloader()) {
      EXPECT_EQ(accelerator.global_batch_size(batch.data), 1);
      break;
    }
  }
  expect_no_batch(accelerator, 2);

  // A loop that does not train.
  for (auto& batch : *loader) {
    auto body = accelerator.loop_body();
    if (batch.data.size(0) > 0) {
      break;
    }
  }
  expect_no_batch(accelerator, 2);
  expect_complete_pass(accelerator, 13);

  // An inner loop is left: the outer batch is the one that counts again.
  auto inner = numbers_loader(6, 6);
  int64_t bodies = 0;
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate();
    for (auto& other : *inner) {
      auto body = accelerator.loop_body();
      EXPECT_EQ(accelerator.global_batch_size(other.data), 6);
      break;
    }
    EXPECT_EQ(
        accelerator.gather_for_metrics(batch.target)[0].item<int64_t>(),
        4 * bodies);
    ++bodies;
    if (bodies == 2) {
      // Left without a guard of its own; the outer step ends it.
      for ([[maybe_unused]] auto& other : *inner) {
        break;
      }
      break;
    }
  }
  expect_no_batch(accelerator, 2);

  train_until_return(accelerator, *loader, false);
  expect_no_batch(accelerator, 2);
  EXPECT_THROW(
      train_until_return(accelerator, *loader, true), std::runtime_error);
  expect_no_batch(accelerator, 2);
  expect_complete_pass(accelerator, 13);
}

TEST(LeftEarly, NothingOfTheBatchStays) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("loop_left_by_break", world);
  }
}

ACCEL_RANK_FUNCTION(loader_advanced_by_hand) {
  Accelerator accelerator(kMatch);
  auto loader = numbers_loader(12, 4);
  // The next batch is fetched inside of the body.
  int64_t first = 0;
  auto iterator = loader->begin();
  while (iterator != loader->end()) {
    auto step = accelerator.accumulate();
    EXPECT_TRUE(torch::equal(
        accelerator.gather_for_metrics(iterator->target),
        torch::arange(first, first + 4)));
    first += 4;
    ++iterator;
  }
  EXPECT_EQ(first, 12);
  expect_no_batch(accelerator, 2);

  {
    auto step = accelerator.accumulate();
    auto abandoned = numbers_loader(12, 4);
    const auto batch = *abandoned->begin();
    EXPECT_EQ(accelerator.global_batch_size(batch.data), 4);
  }
  expect_no_batch(accelerator, 2);
  {
    auto body = accelerator.loop_body();
    EXPECT_EQ(
        accelerator.global_batch_size((*loader->begin()).data), 4);
  }
  expect_no_batch(accelerator, 2);
}

TEST(LeftEarly, LoadersAreAdvancedAndAbandonedByHand) {
  accel::test::run_and_expect_success("loader_advanced_by_hand", 2);
}

// What comes behind the guard works on the same distributed tensors.
ACCEL_RANK_FUNCTION(behind_the_guard) {
  Accelerator accelerator(kMatch);
  torch::manual_seed(3);
  torch::nn::Linear model(2, 1);
  model->to(torch::kDouble);
  auto reference = std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->clone());
  accelerator.prepare(model);
  auto loader = numbers_loader(7, 4);
  int64_t first = 0;
  for (auto& batch : *loader) {
    { auto step = accelerator.accumulate(model); }
    const int64_t size = std::min<int64_t>(4, 7 - first);
    const auto whole = torch::arange(first, first + size, torch::kDouble)
                           .unsqueeze(1)
                           .repeat({1, 2});
    first += size;
    const auto rows = model->forward(batch.data);
    const auto expected = reference->forward(whole);
    EXPECT_TRUE(torch::allclose(
        accelerator.gather_for_metrics(rows), expected, 1e-12, 1e-14));
    EXPECT_NEAR(
        accelerator.reduce_for_metrics(rows.mean()).item<double>(),
        expected.mean().item<double>(),
        1e-12);
    EXPECT_EQ(accelerator.global_batch_size(rows), size);
    model->zero_grad();
    reference->zero_grad();
    accelerator.backward(rows.pow(2).mean());
    expected.pow(2).mean().backward();
    EXPECT_TRUE(torch::allclose(
        model->weight.grad(), reference->weight.grad(), 1e-12, 1e-14));
  }
  EXPECT_EQ(first, 7);
}

TEST(LeftEarly, WhatComesBehindTheGuardIsRight) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("behind_the_guard", world);
  }
}

ACCEL_RANK_FUNCTION(window_left_open) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(2));
  torch::nn::Linear model(2, 1);
  model->to(torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      parameter.fill_(0.25);
    }
  }
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), 0.01);
  accelerator.prepare(model, optimizer);
  const auto micro_step = [&](const torch::data::Example<>& batch) {
    auto step = accelerator.accumulate(model);
    accelerator.backward(model->forward(batch.data).pow(2).mean());
    optimizer.step();
    optimizer.zero_grad();
  };
  auto loader = numbers_loader(12, 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    int batches = 0;
    for (auto& batch : *loader) {
      micro_step(batch);
      if (++batches == 1) {
        break;
      }
    }
  }
  // Two micro-steps, one in each pass, over samples 0 to 3: one step.
  auto reference = torch::full({1, 2}, 0.25, torch::kDouble).requires_grad_();
  auto bias = torch::full({1}, 0.25, torch::kDouble).requires_grad_();
  const auto x = torch::arange(4, torch::kDouble).unsqueeze(1).expand({4, 2});
  torch::linear(x, reference, bias).pow(2).mean().backward();
  EXPECT_TRUE(torch::allclose(
      model->weight, reference.detach() - 0.01 * reference.grad()));
  EXPECT_TRUE(
      torch::allclose(model->bias, bias.detach() - 0.01 * bias.grad()));
}

TEST(LeftEarly, AnOpenWindowGoesOnInTheNextLoop) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("window_left_open", world);
  }
}

// What the last batch has left is read behind its loop.
ACCEL_RANK_FUNCTION(reads_of_the_last_batch) {
  Accelerator accelerator(kMatch);
  const auto before = torch::ones({2});
  EXPECT_TRUE(accelerator.last_batch().gather_for_metrics(before).is_same(before));
  torch::nn::Linear net(1, 1);
  accelerator.prepare(net);
  // Three batches of rows of two numbers, the last one with two of them: fewer
  // than some processes.
  auto loader = numbers_loader(10, 4);
  torch::Tensor rows, mean, sum;
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate(net);
    rows = batch.data;
    mean = batch.data.to(torch::kDouble).mean();
    sum = batch.data.to(torch::kDouble).sum();
  }
  auto last = accelerator.last_batch();
  EXPECT_TRUE(torch::equal(
      last.gather_for_metrics(rows).select(1, 0).to(torch::kLong),
      torch::tensor({8, 9}, torch::kLong)));
  EXPECT_DOUBLE_EQ(last.reduce_for_metrics(mean).item<double>(), 8.5);
  EXPECT_DOUBLE_EQ(
      last.reduce_for_metrics(sum, torch::kSum).item<double>(), 34);
  // Reading does not make it the batch that is worked on.
  EXPECT_FALSE(GradientState::get().in_dataloader());
  // A loop that was left, and a batch that no loader made.
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate(net);
    mean = batch.data.to(torch::kDouble).mean();
    break;
  }
  EXPECT_DOUBLE_EQ(
      accelerator.last_batch().reduce_for_metrics(mean).item<double>(), 1.5);
  {
    auto step = accelerator.accumulate(net);
    rows = accelerator.shard_batch(torch::arange(5));
  }
  EXPECT_TRUE(torch::equal(
      accelerator.last_batch().gather_for_metrics(rows), torch::arange(5)));
}

TEST(LastBatch, IsReadBehindItsLoop) {
  for (const int processes : {1, 2, 3}) {
    accel::test::run_and_expect_success("reads_of_the_last_batch", processes);
  }
}

ACCEL_RANK_FUNCTION(last_batch_without_matching) {
  Accelerator accelerator;
  std::string error;
  try {
    accelerator.last_batch().reduce_for_metrics(torch::ones({}));
  } catch (const c10::Error& caught) {
    error = caught.what();
  }
  EXPECT_EQ(
      error.find("needs match_single_device") != std::string::npos,
      accelerator.use_distributed())
      << error;
}

TEST(LastBatch, NeedsToKnowTheParts) {
  accel::test::run_and_expect_success("last_batch_without_matching", 1);
  accel::test::run_and_expect_success("last_batch_without_matching", 2);
}
