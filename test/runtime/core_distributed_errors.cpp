// What a program cannot do with distributed tensors is an error on every process,
// which says what to do instead: no hang, and no wrong number.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::distributed::DeviceMesh;
using accel::distributed::distribute_tensor;
using accel::distributed::from_local;
using accel::distributed::Partial;
using accel::distributed::Replicate;
using accel::distributed::Shard;
using accel::test::both_ways;
using accel::test::contains;
using accel::test::error_of;
using accel::test::expect_all_fail;
using accel::test::run;
using accel::test::run_and_expect_success;
using accel::test::RunOptions;
using torch::Tensor;

namespace {

AcceleratorOptions options() {
  return AcceleratorOptions().cpu(true).match_single_device(true);
}

/// The same on all processes, cut along dimension 0.
Tensor rows(Accelerator& accelerator, int64_t count = 8) {
  const auto whole =
      torch::sin(torch::arange(count * 3, torch::kDouble)).view({count, 3});
  auto tensor = accelerator.distribute(whole);
  EXPECT_EQ(
      accel::distributed::is_distributed(tensor), accelerator.num_processes() > 1);
  return tensor;
}

/// All processes still meet in the right order: their sums are right.
void expect_in_step(Accelerator& accelerator) {
  const auto world = accelerator.num_processes();
  EXPECT_EQ(
      accelerator.reduce(torch::ones({2})).sum().item<double>(), 2.0 * world);
  const auto x = rows(accelerator);
  EXPECT_EQ(
      accelerator.full(x.mul(2)).sum().item<double>(),
      x.mul(2).sum().item<double>());
}

RunOptions with(
    std::map<std::string, std::optional<std::string>> environment) {
  RunOptions options;
  options.environment = std::move(environment);
  return options;
}

} // namespace

// ---- Raw memory.

ACCEL_RANK_FUNCTION(asks_for_memory) {
  Accelerator accelerator(options());
  auto x = rows(accelerator);
  const std::vector<std::pair<const char*, std::function<void()>>> ways{
      {"data_ptr", [&] { x.data_ptr(); }},
      {"typed data_ptr", [&] { x.data_ptr<double>(); }},
      {"mutable_data_ptr", [&] { x.mutable_data_ptr(); }},
      {"const_data_ptr", [&] { x.const_data_ptr<double>(); }},
      {"accessor", [&] { x.accessor<double, 2>(); }},
      {"accessor of a view",
       [&] {
         const auto column = x.select(1, 0);
         column.accessor<double, 1>();
       }},
      {"packed accessor", [&] { x.packed_accessor64<double, 2>(); }},
      {"data of detach", [&] { x.detach().data_ptr<double>(); }},
      {"data of contiguous", [&] { x.t().contiguous().data_ptr<double>(); }},
      {"storage", [&] { x.storage().data(); }},
      {"mutable storage", [&] { x.storage().mutable_data(); }},
      {"of a sum", [&] { x.sum().data_ptr<double>(); }},
      {"saving",
       [&] {
         std::ostringstream out;
         torch::save(x, out);
       }},
  };
  for (const auto& [name, way] : ways) {
    const auto error = error_of(way);
    EXPECT_TRUE(contains(error, "accelerator.full(tensor)")) << name << error;
    EXPECT_TRUE(contains(error, "full_tensor")) << name << error;
  }
  const auto whole = accelerator.full(x);
  EXPECT_EQ(whole.data_ptr<double>()[1], std::sin(1.0));
  expect_in_step(accelerator);
}

TEST(DistributedErrors, RawMemoryNamesFullTensor) {
  run_and_expect_success("asks_for_memory", 2);
}

// ---- Other threads.

// It is not the memory that is wanted there.
ACCEL_RANK_FUNCTION(broadcasts_rows) {
  Accelerator accelerator(options());
  auto x = rows(accelerator);
  const auto error = error_of([&] { accelerator.broadcast(x); });
  EXPECT_TRUE(contains(error, "broadcast was given a distributed tensor")) << error;
  EXPECT_TRUE(contains(error, "use full")) << error;
  expect_in_step(accelerator);
}

TEST(DistributedErrors, BroadcastNamesFull) {
  run_and_expect_success("broadcasts_rows", 2);
}

ACCEL_RANK_FUNCTION(works_on_another_thread) {
  Accelerator accelerator(options());
  const auto x = rows(accelerator);
  const auto on_thread = [](const std::function<void()>& work) {
    std::string error;
    std::thread([&] { error = error_of(work); }).join();
    return error;
  };
  for (const std::function<void()>& work :
       std::vector<std::function<void()>>{
           [&] { x.mul(2); }, // would not communicate
           [&] { x.sum().item(); },
           [&] { accelerator.full(x); },
           [&] { torch::cat({x, x}); }}) {
    const auto error = on_thread(work);
    EXPECT_TRUE(contains(error, "on another thread than the one")) << error;
    EXPECT_TRUE(contains(error, "accelerator.full(tensor)")) << error;
  }
  const auto whole = accelerator.full(x);
  EXPECT_EQ(on_thread([&] { whole.sum().item(); }), "no error");
  // Sizes are everybody's.
  EXPECT_EQ(on_thread([&] { EXPECT_EQ(x.size(0), 8); }), "no error");
  expect_in_step(accelerator);
}

TEST(DistributedErrors, OperatorsOnOtherThreads) {
  run_and_expect_success("works_on_another_thread", 2);
}

// ---- Where not all processes are.

ACCEL_RANK_FUNCTION(communicates_alone) {
  Accelerator accelerator(options());
  const int64_t world = accelerator.num_processes();
  const int64_t rank = accelerator.process_index();
  const auto x = rows(accelerator);
  int64_t regions = 0;
  const auto in_region = [&](const char* region) {
    ++regions;
    for (const std::function<void()>& work :
         std::vector<std::function<void()>>{
             [&] { x.sum().item(); },
             [&] { accelerator.full(x); },
             [&] { std::get<0>(x.sort(0)); },
             [&] { accelerator.reduce(torch::ones({2})); },
             [&] { accelerator.wait_for_everyone(); }}) {
      const auto error = error_of(work);
      if (world == 1) {
        EXPECT_EQ(error, "no error");
        continue;
      }
      EXPECT_TRUE(contains(error, "needs all processes at the same time"))
          << error;
      EXPECT_TRUE(contains(error, region)) << error;
    }
    // Of its own rows everybody may do what it likes.
    EXPECT_EQ(
        error_of([&] { EXPECT_EQ(x.mul(2).add(x).size(0), 8); }), "no error");
  };
  accelerator.on_main_process(in_region, "on_main_process");
  EXPECT_EQ(regions, rank == 0 ? 1 : 0);
  accelerator.on_local_main_process(in_region, "on_local_main_process");
  accelerator.on_last_process(in_region, "on_last_process");
  accelerator.on_process(1, in_region, "on_process");
  accelerator.on_local_process(0, in_region, "on_local_process");
  // One that gives something back, and a region that an exception has left.
  accelerator.on_main_process([&] { in_region("on_main_process"); return 1; });
  accelerator.on_main_process([&] {
    EXPECT_THROW(
        accelerator.on_process(0, [] { throw std::runtime_error("left"); }),
        std::runtime_error);
    in_region("on_main_process");
  });
  expect_in_step(accelerator);
  regions = 0;
  if (world > 1) {
    {
      auto first = accelerator.main_process_first();
      in_region("main_process_first");
    }
    {
      auto first = accelerator.local_main_process_first();
      in_region("local_main_process_first");
    }
    EXPECT_EQ(regions, 2); // everywhere
  }
  expect_in_step(accelerator);
}

TEST(DistributedErrors, WhereNotAllProcessesAre) {
  for (const int world : {1, 2, 3}) {
    run_and_expect_success("communicates_alone", world);
  }
}

// ---- Two meshes.

ACCEL_RANK_FUNCTION(mixes_meshes) {
  std::optional<Accelerator> accelerator(std::in_place, options());
  const auto old = rows(*accelerator);
  accelerator.reset();
  const auto ended = error_of([&] { old.sum().item(); });
  EXPECT_TRUE(contains(ended, "the Accelerator has ended")) << ended;
  accelerator.emplace(options());
  const auto x = rows(*accelerator);
  for (const std::function<void()>& work :
       std::vector<std::function<void()>>{
           [&] { x.add(old); },
           [&] { old.add(x); },
           [&] { torch::cat({x, old}); },
           [&] { torch::where(x.gt(0), x, old); },
           [&] { x.clone().add_(old); }}) {
    const auto error = error_of(work);
    EXPECT_TRUE(contains(error, "was given tensors of two meshes")) << error;
    EXPECT_TRUE(contains(error, "aten::")) << error;
    EXPECT_TRUE(contains(error, "full_tensor(tensor)")) << error;
  }
  const auto error = error_of(
      [&] { distribute_tensor(old, DeviceMesh(), {Replicate()}); });
  EXPECT_TRUE(contains(error, "a tensor of one mesh")) << error;
  expect_in_step(*accelerator);
}

TEST(DistributedErrors, TensorsOfTwoMeshes) {
  run_and_expect_success("mixes_meshes", 2);
}

// ---- Processes that arrive with different operators, sizes or dtypes.

namespace {

[[gnu::noinline]] void puts_it_together(
    Accelerator& accelerator, const Tensor& x) {
  accelerator.full(x);
}

[[gnu::noinline]] void sorts_it(const Tensor& x) {
  std::get<0>(x.sort(0));
}

[[gnu::noinline]] void sums_it(const Tensor& x) {
  x.sum().item();
}

} // namespace

ACCEL_RANK_FUNCTION(other_operators) {
  Accelerator accelerator(options());
  const auto x = rows(accelerator);
  sums_it(x);
  if (accelerator.is_last_process()) {
    sorts_it(x);
  } else {
    puts_it_together(accelerator, x);
  }
}

TEST(OutOfStepOperators, BothAreNamedWithTheirPlaces) {
  for (const auto& way : both_ways()) {
    for (const int world : {2, 3}) {
      expect_all_fail(
          run("other_operators", world, way),
          {"the processes are out of step",
           "process 0 is in all_gather",
           "of Double [8, 3] for full_tensor",
           "of Double [8, 3] for aten::sort",
           "puts_it_together",
           "sorts_it"});
    }
  }
}

ACCEL_RANK_FUNCTION(other_kinds) {
  Accelerator accelerator(options());
  const auto x = rows(accelerator);
  if (accelerator.is_main_process()) {
    sums_it(x);
  } else {
    puts_it_together(accelerator, x);
  }
}

TEST(OutOfStepOperators, ASumAndAGathering) {
  for (const auto& way : both_ways()) {
    expect_all_fail(
        run("other_kinds", 2, way),
        {"process 0 is in all_reduce",
         "sums_it",
         "process 1 is in all_gather",
         "puts_it_together"});
  }
}

// Of 7 and of 8 rows the first process has 4 alike, and a message is as long.
ACCEL_RANK_FUNCTION(other_sizes) {
  Accelerator accelerator(options());
  const auto x = rows(accelerator, accelerator.is_main_process() ? 7 : 8);
  puts_it_together(accelerator, x);
}

TEST(OutOfStepOperators, OtherSizes) {
  for (const auto& way : both_ways()) {
    expect_all_fail(
        run("other_sizes", 2, way),
        {"process 0 is in all_gather #1 of Double [7, 3] for full_tensor, "
         "called at ",
         "process 1 is in all_gather #1 of Double [8, 3] for full_tensor, "
         "called at "});
  }
}

ACCEL_RANK_FUNCTION(other_dtypes) {
  Accelerator accelerator(options());
  auto x = rows(accelerator);
  x = accelerator.is_main_process() ? x.to(torch::kLong) : x;
  puts_it_together(accelerator, x);
}

TEST(OutOfStepOperators, OtherDtypes) {
  for (const auto& way : both_ways()) {
    expect_all_fail(
        run("other_dtypes", 2, way),
        {"of Long [8, 3] for full_tensor", "of Double [8, 3] for full_tensor"});
  }
}

// Nobody else has anything to send: only the watchdog sees it.
ACCEL_RANK_FUNCTION(reads_under_a_condition) {
  Accelerator accelerator(options());
  const auto x = rows(accelerator);
  if (accelerator.is_main_process()) {
    sums_it(x);
  }
  accelerator.wait_for_everyone();
}

TEST(OutOfStepOperators, WhatOneProcessWaitsInIsNamed) {
  for (auto way : both_ways()) {
    way.environment["ACCEL_STALL_TIMEOUT"] = "2";
    expect_all_fail(
        run("reads_under_a_condition", 2, way),
        {"the processes are out of step",
         "in all_reduce #1 of Double [] for aten::_local_scalar_dense",
         "sums_it",
         "in barrier #"});
  }
}

// ---- Values that differ.

namespace {

/// A distributed tensor of which each process may have another value.
Tensor own_value(double value) {
  return from_local(
      torch::tensor(value, torch::kDouble), DeviceMesh(), Replicate());
}

struct Training {
  Training() : accelerator(options()), net(3, 4) {
    net->to(torch::kDouble);
    accelerator.prepare(net);
  }
  /// Of rows that are shared out.
  Tensor loss() {
    return net->forward(rows(accelerator)).pow(2).mean();
  }
  /// Of what every process has.
  Tensor plain_loss() {
    return net->forward(torch::ones({2, 3}, torch::kDouble)).pow(2).mean();
  }
  Accelerator accelerator;
  torch::nn::Linear net;
};

[[gnu::noinline]] double reads_it(const Tensor& x) {
  return x.item<double>();
}

} // namespace

ACCEL_RANK_FUNCTION(reads_other_values) {
  Training training;
  const auto rank = static_cast<double>(training.accelerator.process_index());
  reads_it(own_value(7));
  training.accelerator.backward(training.loss());
  reads_it(own_value(1));
  reads_it(own_value(0.25 + rank));
  reads_it(own_value(3));
  training.accelerator.backward(training.loss());
}

TEST(ReadValues, ThatDifferAreAnErrorInTheNextBackward) {
  for (const auto& way : both_ways()) {
    for (const int world : {2, 3}) {
      expect_all_fail(
          run("reads_other_values", world, way),
          {"read different values out of one distributed tensor",
           "process 0: 0.25, by aten::_local_scalar_dense, at ",
           "process 1: 1.25, by aten::_local_scalar_dense, at ",
           "reads_it",
           "number 2 since the last comparison",
           "accelerator.broadcast_object(value)",
           "ACCEL_CHECK_VALUES=0"});
    }
  }
  run_and_expect_success(
      "reads_other_values", 2, with({{"ACCEL_CHECK_VALUES", "0"}}));
}

// After many steps.
ACCEL_RANK_FUNCTION(reads_other_values_after_a_while) {
  Training training;
  for (int step = 0; step < 50; ++step) {
    const double rank =
        step < 49 ? 0 : static_cast<double>(training.accelerator.process_index());
    reads_it(own_value(rank + step));
    training.accelerator.backward(training.loss());
  }
}

TEST(ReadValues, AfterManySteps) {
  expect_all_fail(
      run("reads_other_values_after_a_while", 2),
      {"process 0: 49, by aten::_local_scalar_dense, at reads_it",
       "process 1: 50, by aten::_local_scalar_dense, at reads_it",
       "(where it was some steps before)"});
}

// Behind the values that are kept.
ACCEL_RANK_FUNCTION(reads_other_values_late) {
  Training training;
  const auto rank = static_cast<double>(training.accelerator.process_index());
  for (int i = 0; i < 200; ++i) {
    reads_it(own_value(i < 150 ? 0 : rank));
  }
  training.accelerator.backward(training.loss());
}

TEST(ReadValues, LateOnesToo) {
  expect_all_fail(
      run("reads_other_values_late", 2),
      {"process 0: one behind the first 64 since the last comparison"});
}

// ---- Parameters that differ.

namespace {

/// Two steps; before the second one the program does something to the model.
void train_with(const std::function<void(Training&)>& change, bool everywhere) {
  Training training;
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(training.net->parameters(), 0.1);
  training.accelerator.prepare(optimizer);
  for (int step = 0; step < 2; ++step) {
    if (step == 1 && (everywhere || training.accelerator.is_main_process())) {
      const torch::NoGradGuard no_grad;
      change(training);
    }
    optimizer.zero_grad();
    training.accelerator.backward(training.loss());
    optimizer.step();
  }
}

void halve(Training& training) {
  training.net->weight.mul_(0.5);
}

/// Which no version tells.
void halve_data(Training& training) {
  training.net->bias.variable_data().mul_(0.5);
}

/// As a program does that saves averaged weights.
void put_others_in_and_back(Training& training) {
  const auto before = training.net->weight.clone();
  training.net->weight.zero_();
  training.net->weight.copy_(before);
}

/// As other processors round.
void round_otherwise(Training& training) {
  training.net->bias.variable_data().mul_(1 + 1e-15);
}

} // namespace

ACCEL_RANK_FUNCTION(one_process_halves_a_weight) {
  train_with(halve, /*everywhere=*/false);
}
ACCEL_RANK_FUNCTION(one_process_halves_data) {
  train_with(halve_data, /*everywhere=*/false);
}
ACCEL_RANK_FUNCTION(all_processes_halve_a_weight) {
  train_with(halve, /*everywhere=*/true);
}
ACCEL_RANK_FUNCTION(one_process_puts_others_in_and_back) {
  train_with(put_others_in_and_back, /*everywhere=*/false);
}
ACCEL_RANK_FUNCTION(one_process_rounds_otherwise) {
  train_with(round_otherwise, /*everywhere=*/false);
}

TEST(SameParameters, WhatOneProcessWritesIsAnErrorInTheNextBackward) {
  for (const auto& way : both_ways()) {
    expect_all_fail(
        run("one_process_halves_a_weight", 2, way),
        {"the parameter 'weight' (Double [4, 3]) is no longer the same on all",
         "process 0: written 1 times since all had it alike, the sum of its",
         "process 1: written 0 times since all had it alike, the sum of its",
         "not under is_main_process()",
         "accelerator.broadcast(tensor)",
         "ACCEL_CHECK_VALUES=0"});
  }
  expect_all_fail(
      run("one_process_halves_data", 3),
      {"the parameter 'bias' (Double [4]) is no longer the same on all"});
  run_and_expect_success(
      "one_process_halves_a_weight", 2, with({{"ACCEL_CHECK_VALUES", "0"}}));
}

TEST(SameParameters, WhatOneProcessWritesToAPartIsAnError) {
  expect_all_fail(
      run("one_process_halves_a_weight",
          2,
          with({{"ACCELERATE_USE_FSDP", "true"},
                {"FSDP_SHARDING_STRATEGY", "FULL_SHARD"}})),
      {"the parameter 'weight' (Double [4, 3]) was not written to alike on all "
       "processes, each of which holds a part"});
}

TEST(SameParameters, WhatAllWriteOrOneTakesBackIsNone) {
  for (const char* name :
       {"all_processes_halve_a_weight", "one_process_puts_others_in_and_back",
        "one_process_rounds_otherwise"}) {
    run_and_expect_success(name, 2);
  }
}

// No backward comes any more.
ACCEL_RANK_FUNCTION(reads_other_values_at_the_end) {
  Training training;
  training.accelerator.backward(training.loss());
  reads_it(own_value(0.5));
  reads_it(own_value(
      0.25 + static_cast<double>(training.accelerator.process_index())));
  std::cout << "done";
}

TEST(ReadValues, AreComparedWhenTheProgramEnds) {
  for (const auto& way : both_ways()) {
    const auto results = run("reads_other_values_at_the_end", 2, way);
    expect_all_fail(
        results,
        {"read different values out of one distributed tensor",
         "reads_it",
         "process 0: 0.25",
         "process 1: 1.25"});
    for (const auto& result : results) {
      EXPECT_TRUE(contains(result.output, "done")); // it was not cut short
    }
  }
}

ACCEL_RANK_FUNCTION(reads_equal_values) {
  Training training;
  auto& accelerator = training.accelerator;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int step = 0; step < 3; ++step) {
    reads_it(own_value(nan));
    // A NaN has a sign, which nobody sees.
    reads_it(own_value(accelerator.is_main_process() ? -nan : nan));
    rows(accelerator).sum().item();
    torch::equal(rows(accelerator), rows(accelerator));
    if (accelerator.is_main_process()) {
      // Needs nobody else.
      reads_it(own_value(step));
    }
    accelerator.on_last_process([&] { reads_it(own_value(step)); });
    accelerator.backward(step == 1 ? training.plain_loss() : training.loss());
  }
  accelerator.backward(training.plain_loss() * nan);
  // Everybody has read as much as the others, but for process 0.
  reads_it(own_value(1));
  accelerator.on_main_process([&] { reads_it(own_value(2)); });
}

TEST(ReadValues, EqualOnesAreNoError) {
  for (const auto& way : both_ways()) {
    for (const int world : {1, 2, 3}) {
      for (const auto& result :
           run_and_expect_success("reads_equal_values", world, way)) {
        EXPECT_EQ(result.error, "");
      }
    }
  }
}

ACCEL_RANK_FUNCTION(plain_losses_differ) {
  Training training;
  auto& accelerator = training.accelerator;
  const auto rank = static_cast<double>(accelerator.process_index());
  accelerator.backward(training.plain_loss());
  // Process 0 reads something else besides.
  if (accelerator.is_main_process()) {
    reads_it(own_value(1));
  }
  accelerator.backward(training.plain_loss() * 0 + 0.5 + rank);
}

TEST(PlainLosses, ThatDifferAreAnError) {
  for (const auto& way : both_ways()) {
    for (const int world : {2, 3}) {
      expect_all_fail(
          run("plain_losses_differ", world, way),
          {"backward was given a plain tensor as the loss, and it is not the "
           "same on all processes",
           "process 0: 0.5, at ",
           "process 1: 1.5, at ",
           "plain_losses_differ",
           "leave match_single_device off"});
    }
  }
  run_and_expect_success(
      "plain_losses_differ", 2, with({{"ACCEL_CHECK_VALUES", "0"}}));
}

// Where nothing is shared out not every backward compares, but what one leaves out
// the next one has; the last ones are compared when the program ends.
ACCEL_RANK_FUNCTION(plain_losses_differ_late) {
  Training training;
  const auto rank = static_cast<double>(training.accelerator.process_index());
  const std::string when = std::getenv("ACCEL_TEST_WHEN");
  for (int step = 0; step < 30; ++step) {
    training.accelerator.backward(
        training.plain_loss() * 0 + (step == std::stoi(when) ? rank : 0.25));
  }
  std::cout << "done";
}

TEST(PlainLosses, LateOnesToo) {
  for (const char* when : {"9", "17", "28"}) {
    const auto results = run(
        "plain_losses_differ_late", 2, with({{"ACCEL_TEST_WHEN", when}}));
    expect_all_fail(
        results,
        {"it is not the same on all processes", "process 0: 0", "process 1: 1"});
    EXPECT_EQ(
        contains(results[0].output, "done"), std::string(when) == "28");
  }
}

// In a window that has not ended, and with a loss that a closure makes.
ACCEL_RANK_FUNCTION(plain_losses_of_a_window) {
  Accelerator accelerator(
      options().gradient_accumulation_steps(3));
  torch::nn::Linear net(3, 1);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), torch::optim::SGDOptions(0.1));
  accelerator.prepare(net, optimizer);
  for (int i = 0; i < 3; ++i) {
    auto step = accelerator.accumulate(net);
    const auto other = i == 1
        ? static_cast<float>(accelerator.process_index())
        : 0.F;
    const auto error = error_of([&] {
      accelerator.backward(net->forward(torch::ones({2, 3})).sum() * 0 + other);
      optimizer.step();
    });
    // The comparison comes with the gradients.
    EXPECT_EQ(contains(error, "it is not the same on all processes"), i == 2)
        << i << error;
    if (i == 2) {
      EXPECT_TRUE(contains(error, "number 2 since the last comparison"))
          << error;
    }
  }
}

TEST(PlainLosses, AreComparedOnceInAWindow) {
  run_and_expect_success("plain_losses_of_a_window", 2);
}

// Accelerate's way: each process has a batch of its own.
ACCEL_RANK_FUNCTION(plain_losses_of_own_batches) {
  Accelerator accelerator(AcceleratorOptions().cpu(true));
  torch::nn::Linear net(3, 1);
  accelerator.prepare(net);
  const auto rank = static_cast<double>(accelerator.process_index());
  accelerator.backward(
      net->forward(torch::full({2, 3}, rank)).pow(2).mean());
}

TEST(PlainLosses, MayDifferInAcceleratesMode) {
  for (const auto& result :
       run_and_expect_success("plain_losses_of_own_batches", 2)) {
    EXPECT_EQ(result.error, "");
  }
}

// ---- Sums of dtypes that c10d does not sum.

ACCEL_RANK_FUNCTION(sums_other_dtypes) {
  Accelerator accelerator(options());
  const int64_t rank = accelerator.process_index();
  const int64_t world = accelerator.num_processes();
  for (const auto dtype :
       {torch::kComplexDouble, torch::kComplexFloat, torch::kShort}) {
    auto mine = torch::full({3}, rank + 1, torch::kDouble).to(dtype);
    auto sum = torch::full({3}, world * (world + 1) / 2, torch::kDouble).to(dtype);
    if (mine.is_complex()) {
      const c10::complex<double> i(0, 1);
      mine = mine * i;
      sum = sum * i;
    }
    const auto whole =
        accelerator.full(from_local(mine, DeviceMesh(), Partial()));
    EXPECT_EQ(whole.scalar_type(), dtype);
    EXPECT_TRUE(torch::equal(whole, sum)) << whole;
  }
}

TEST(DistributedErrors, SumsOfAllDtypes) {
  for (const auto& way : both_ways()) {
    run_and_expect_success("sums_other_dtypes", 3, way);
  }
}
