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
    const auto part = accelerator.distribute(torch::arange(rows + 1));
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
    EXPECT_EQ(batch.data.size(0), 4);
    break;
  }
  expect_no_batch(accelerator, 2);
  expect_complete_pass(accelerator, 13);
  expect_no_batch(accelerator, 2);

  // In the last batch, of one row.
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate();
    if (GradientState::get().end_of_dataloader()) {
      EXPECT_EQ(batch.data.size(0), 1);
      break;
    }
  }
  expect_no_batch(accelerator, 2);

  // A loop that does not train.
  for (auto& batch : *loader) {
    EXPECT_TRUE(GradientState::get().in_dataloader());
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
      EXPECT_EQ(other.data.size(0), 6);
      EXPECT_TRUE(GradientState::get().end_of_dataloader());
      break;
    }
    EXPECT_FALSE(GradientState::get().end_of_dataloader());
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
    EXPECT_EQ(batch.data.size(0), 4);
  }
  expect_no_batch(accelerator, 2);
  EXPECT_EQ((*loader->begin()).data.size(0), 4);
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
        rows.mean().item<double>(), expected.mean().item<double>(), 1e-12);
    EXPECT_EQ(rows.size(0), size);
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
  torch::nn::Linear net(1, 1);
  accelerator.prepare(net);
  // Three batches of rows of two numbers, the last one with two of them: fewer
  // than some processes.
  auto loader = numbers_loader(10, 4);
  torch::Tensor rows, mean;
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate(net);
    rows = batch.data;
    mean = batch.data.to(torch::kDouble).mean();
  }
  EXPECT_TRUE(torch::equal(
      accelerator.gather_for_metrics(rows).select(1, 0).to(torch::kLong),
      torch::tensor({8, 9}, torch::kLong)));
  EXPECT_DOUBLE_EQ(mean.item<double>(), 8.5);
  // Reading does not make it the batch that is worked on.
  EXPECT_FALSE(GradientState::get().in_dataloader());
  // A loop that was left, and a batch that no loader made.
  for (auto& batch : *loader) {
    auto step = accelerator.accumulate(net);
    mean = batch.data.to(torch::kDouble).mean();
    break;
  }
  EXPECT_DOUBLE_EQ(mean.item<double>(), 1.5);
  {
    auto step = accelerator.accumulate(net);
    rows = accelerator.distribute(torch::arange(5));
  }
  EXPECT_TRUE(
      torch::equal(accelerator.gather_for_metrics(rows), torch::arange(5)));
}

TEST(LeftEarly, TheLastBatchIsReadBehindItsLoop) {
  for (const int processes : {1, 2, 3}) {
    accel::test::run_and_expect_success("reads_of_the_last_batch", processes);
  }
}

// Accumulation windows end with the pass of the loop that trains, whatever other
// loops are left early. Three batches in a pass and two in a window.

namespace {

/// What a loop over `loader`, of which every process gets three batches, is made
/// of: `before`, a step and `behind`, each in the loop's body. Returns "0" for a
/// step that only accumulates and "1" for one that synchronises.
template <typename Loader, typename Before, typename Behind>
std::string steps_of(
    Accelerator& accelerator,
    Loader& loader,
    Before&& before,
    Behind&& behind) {
  std::string steps;
  for ([[maybe_unused]] auto& batch : *loader) {
    before();
    auto step = accelerator.accumulate();
    steps += accelerator.sync_gradients() ? '1' : '0';
    behind();
  }
  return steps;
}

void nothing() {}

} // namespace

ACCEL_RANK_FUNCTION(windows_around_loops_left) {
  for (const bool match : {true, false}) {
    Accelerator accelerator(AcceleratorOptions()
                                .match_single_device(match)
                                .gradient_accumulation_steps(2));
    const auto world =
        static_cast<size_t>(match ? 1 : accelerator.num_processes());
    auto loader = numbers_loader(12 * world, 4);
    // Left in its last batch, which would end a window.
    auto evaluation = numbers_loader(4 * world, 4);
    torch::Tensor kept;
    const auto leave = [&] {
      for (auto& batch : *evaluation) {
        EXPECT_EQ(batch.data.size(0), 4);
        EXPECT_TRUE(GradientState::get().end_of_dataloader());
        break;
      }
    };
    const auto leave_by_return = [&] {
      for ([[maybe_unused]] auto& batch : *evaluation) {
        return;
      }
    };
    const auto leave_by_exception = [&] {
      try {
        for ([[maybe_unused]] auto& batch : *evaluation) {
          throw std::runtime_error("left");
        }
      } catch (const std::runtime_error&) {
      }
    };
    const auto leave_and_keep = [&] {
      for (auto& batch : *evaluation) {
        kept = batch.data;
        break;
      }
    };
    const auto leave_and_destroy = [&] {
      auto other = numbers_loader(4 * world, 4);
      for (auto& batch : *other) {
        kept = batch.data;
        break;
      }
    };
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_EQ(steps_of(accelerator, loader, nothing, nothing), "011");
      EXPECT_EQ(steps_of(accelerator, loader, leave, nothing), "011");
      EXPECT_EQ(steps_of(accelerator, loader, nothing, leave), "011");
      EXPECT_EQ(
          steps_of(accelerator, loader, leave_by_return, leave_by_exception),
          "011");
      EXPECT_EQ(
          steps_of(accelerator, loader, leave_by_exception, leave_by_return),
          "011");
      EXPECT_EQ(
          steps_of(accelerator, loader, nothing, leave_and_keep), "011");
      EXPECT_EQ(
          steps_of(accelerator, loader, leave_and_destroy, leave_and_destroy),
          "011");
      // Between two passes.
      leave();
      EXPECT_EQ(steps_of(accelerator, loader, nothing, nothing), "011");
      leave_and_keep();
      EXPECT_EQ(steps_of(accelerator, loader, nothing, nothing), "011");
    }
    // Steps over batches that no loader makes are counted, nothing else.
    kept = torch::Tensor();
    std::string steps;
    for (int i = 0; i < 6; ++i) {
      leave();
      auto step = accelerator.accumulate();
      steps += accelerator.sync_gradients() ? '1' : '0';
      EXPECT_FALSE(GradientState::get().end_of_dataloader());
    }
    EXPECT_EQ(steps, "010101");
    EXPECT_FALSE(GradientState::get().in_dataloader());
  }
}

TEST(LeftEarly, WindowsEndWithTheLoopThatTrains) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("windows_around_loops_left", world);
  }
}

ACCEL_RANK_FUNCTION(windows_of_several_loaders) {
  for (const bool match : {true, false}) {
    Accelerator accelerator(AcceleratorOptions()
                                .match_single_device(match)
                                .gradient_accumulation_steps(2));
    const auto world =
        static_cast<size_t>(match ? 1 : accelerator.num_processes());
    const auto batches = [&](size_t count) {
      return numbers_loader(4 * count * world, 4);
    };
    auto three = batches(3);
    const auto mark = [&](std::string& steps) {
      steps += accelerator.sync_gradients() ? '1' : '0';
    };
    // A loop in each body of another one.
    auto outer = batches(2);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for ([[maybe_unused]] auto& task : *outer) {
        EXPECT_EQ(steps_of(accelerator, three, nothing, nothing), "011");
        auto fresh = batches(3);
        EXPECT_EQ(steps_of(accelerator, fresh, nothing, nothing), "011");
      }
    }
    // A second loader is read inside of the body, by hand, and begins again
    // where it has come to its end.
    for (const size_t others : {2, 5}) {
      auto second = batches(others);
      auto other = second->begin();
      for (int epoch = 0; epoch < 2; ++epoch) {
        EXPECT_EQ(
            steps_of(
                accelerator,
                three,
                nothing,
                [&] {
                  EXPECT_EQ(other->data.size(0), 4);
                  if (++other == second->end()) {
                    other = second->begin();
                  }
                }),
            "011");
      }
    }
    // Two are advanced by the loop itself; the shorter one ends it.
    for (const bool shorter_first : {true, false}) {
      auto five = batches(5);
      auto& first = shorter_first ? three : five;
      auto& second = shorter_first ? five : three;
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::string steps;
        auto a = first->begin();
        auto b = second->begin();
        for (; a != first->end() && b != second->end(); ++a, ++b) {
          auto step = accelerator.accumulate();
          mark(steps);
          EXPECT_TRUE(torch::equal(
              accelerator.full(a->target), accelerator.full(b->target)));
        }
        EXPECT_EQ(steps, "011");
      }
    }
    // The iterator is advanced inside of the body.
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::string steps;
      auto iterator = three->begin();
      while (iterator != three->end()) {
        auto step = accelerator.accumulate();
        mark(steps);
        ++iterator;
      }
      EXPECT_EQ(steps, "011");
    }
  }
}

TEST(LeftEarly, WindowsOfSeveralLoadersEndWithTheirOwn) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("windows_of_several_loaders", world);
  }
}

// Batches that workers load, of types that accel knows and does not know.
ACCEL_RANK_FUNCTION(kinds_of_batches_left) {
  Accelerator accelerator(kMatch);
  const auto in_loop = [] { return GradientState::get().in_dataloader(); };
  {
    auto loader = accel::data::make_data_loader<SequentialSampler>(
        stacked(Numbers(12)), torch::data::DataLoaderOptions(4).workers(2));
    for ([[maybe_unused]] auto& batch : *loader) {
      EXPECT_TRUE(in_loop());
      break;
    }
    EXPECT_FALSE(in_loop());
  }
  // A vector of samples; a body that takes the batch out of the iterator.
  auto samples = accel::data::make_data_loader<SequentialSampler>(Numbers(12), 4);
  for (auto& batch : *samples) {
    const auto mine = std::move(batch);
    EXPECT_TRUE(in_loop());
    break;
  }
  EXPECT_FALSE(in_loop());
  for (auto& batch : *samples) {
    auto step = accelerator.accumulate();
    batch.clear();
    EXPECT_TRUE(in_loop());
  }
  EXPECT_FALSE(in_loop());
}

TEST(LeftEarly, AnyKindOfBatchTells) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("kinds_of_batches_left", world);
  }
}
