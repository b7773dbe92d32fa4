#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/distributed/tensor.h>
#include <accel/grad_scaler.h>
#include <accel/optim/optimizer.h>
#include <accel/optim/scheduler.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <limits>

#include <unistd.h>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using accel::test::contains;
using accel::test::error_of;

namespace {

const auto kMatching = AcceleratorOptions().match_single_device(true);

/// lr = number of steps made; what reference/accelerate.md's table uses.
class CountingLR : public torch::optim::LRScheduler {
 public:
  explicit CountingLR(torch::optim::Optimizer& optimizer)
      : LRScheduler(optimizer) {}

 private:
  std::vector<double> get_lrs() override {
    return {static_cast<double>(step_count_ + 1)};
  }
};

using Trace = std::vector<std::pair<int64_t, bool>>;

/// (step, sync) of two epochs.
Trace accumulate_trace(int64_t batches, int64_t steps, bool with_loader) {
  Accelerator accelerator(AcceleratorOptions()
                              .gradient_accumulation_steps(steps)
                              .sync_with_dataloader(with_loader));
  Trace trace;
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto loader = std::make_shared<accel::DataLoaderState>();
    GradientState::get().enter(loader);
    for (int64_t i = 0; i < batches; ++i) {
      loader->end_of_dataloader = i == batches - 1;
      auto step = accelerator.accumulate();
      trace.emplace_back(GradientState::get().step, accelerator.sync_gradients());
    }
    GradientState::get().leave(loader);
  }
  return trace;
}

} // namespace

TEST(Accumulate, FollowsAcceleratesTable) {
  const Trace a = {{1, false}, {2, true}, {3, false}, {4, true}, {0, true}};
  Trace twice = a;
  twice.insert(twice.end(), a.begin(), a.end());
  EXPECT_EQ(accumulate_trace(5, 2, true), twice);
  EXPECT_EQ(
      accumulate_trace(3, 4, true),
      (Trace{{1, false}, {2, false}, {0, true},
             {1, false}, {2, false}, {0, true}}));
  EXPECT_EQ(
      accumulate_trace(5, 2, false),
      (Trace{{1, false}, {2, true}, {3, false}, {4, true}, {5, false},
             {6, true}, {7, false}, {8, true}, {9, false}, {10, true}}));
  EXPECT_EQ(
      accumulate_trace(3, 4, false),
      (Trace{{1, false}, {2, false}, {3, false},
             {4, true}, {5, false}, {6, false}}));
}

ACCEL_RANK_FUNCTION(scheduler_table) {
  // Two processes; the rows of the table: split, with optimizer, k, rates.
  struct Row {
    bool split;
    bool with_optimizer;
    int64_t steps;
    std::vector<double> rates;
  };
  const std::vector<Row> rows = {
      {false, true, 1, {2, 4, 6, 8}},
      {false, true, 2, {0, 2, 2, 4}},
      {true, true, 1, {1, 2, 3, 4}},
      {true, true, 2, {0, 1, 1, 2}},
      {false, false, 2, {1, 2, 3, 4}},
  };
  auto weight = torch::zeros({1}).set_requires_grad(true);
  const auto& name = std::string(std::getenv("ACCEL_ROW"));
  const auto& row = rows.at(std::stoul(name));
  Accelerator accelerator(AcceleratorOptions()
                              .split_batches(row.split)
                              .step_scheduler_with_optimizer(row.with_optimizer)
                              .gradient_accumulation_steps(row.steps));
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      std::vector<torch::Tensor>{weight}, torch::optim::SGDOptions(0));
  accel::AcceleratedScheduler<CountingLR> scheduler(optimizer);
  accelerator.prepare(optimizer, scheduler);
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i) {
    auto step = accelerator.accumulate();
    optimizer.step();
    scheduler.step();
    rates.push_back(optimizer.param_groups()[0].options().get_lr());
  }
  EXPECT_EQ(rates, row.rates);
}

TEST(Scheduler, FollowsAcceleratesTable) {
  for (int row = 0; row < 5; ++row) {
    accel::test::RunOptions options;
    options.environment["ACCEL_ROW"] = std::to_string(row);
    accel::test::run_and_expect_success("scheduler_table", 2, options);
  }
}

ACCEL_RANK_FUNCTION(scheduler_of_single_device) {
  Accelerator accelerator(
      AcceleratorOptions(kMatching).gradient_accumulation_steps(2));
  auto weight = torch::zeros({1}).set_requires_grad(true);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      std::vector<torch::Tensor>{weight}, torch::optim::SGDOptions(16));
  accel::AcceleratedScheduler<torch::optim::StepLR> scheduler(optimizer, 1, 0.5);
  accelerator.prepare(optimizer);
  const auto rate = [&] {
    return optimizer.param_groups()[0].options().get_lr();
  };
  scheduler.step(); // torch's first step of StepLR changes nothing
  EXPECT_EQ(rate(), 16);
  torch::optim::StepLR& given = scheduler; // as functions may take it
  for (const double expected : {16.0, 8.0, 8.0}) { // not, yes, not in sync
    auto step = accelerator.accumulate();
    optimizer.step();
    given.step();
    EXPECT_EQ(rate(), expected);
  }
  scheduler.step(); // per epoch: once, wherever the window stands
  EXPECT_EQ(rate(), 4);
}

TEST(Scheduler, OneStepPerCallAsOnOneDevice) {
  accel::test::run_and_expect_success("scheduler_of_single_device", 1);
  accel::test::run_and_expect_success("scheduler_of_single_device", 2);
}

ACCEL_RANK_FUNCTION(gathers_for_metrics) {
  Accelerator accelerator(kMatching);
  const auto rank = accelerator.process_index();
  for (const int64_t size : {7, 3, 2, 1}) {
    auto step = accelerator.accumulate();
    const auto ids = torch::arange(size);
    const auto x = accelerator.distribute(ids);
    EXPECT_EQ(x.size(0), size);
    for (const auto dtype :
         {torch::kLong, torch::kInt, torch::kBool, torch::kBFloat16,
          torch::kHalf, torch::kFloat, torch::kDouble, torch::kByte}) {
      const auto gathered = accelerator.gather_for_metrics(x.to(dtype));
      EXPECT_EQ(gathered.scalar_type(), dtype);
      EXPECT_TRUE(torch::equal(gathered, ids.to(dtype))) << gathered;
    }
    // Several tensors; more rows than samples; more dimensions.
    const auto pairs = torch::stack({x, x * 10}, 1);
    torch::Tensor flat;
    torch::Tensor square;
    std::tie(flat, square) = accelerator.gather_for_metrics(
        pairs.reshape({-1}),
        pairs.to(torch::kDouble).set_requires_grad(true) * 1);
    const auto expected = torch::stack({ids, ids * 10}, 1);
    EXPECT_TRUE(torch::equal(flat, expected.reshape({-1})));
    EXPECT_TRUE(torch::equal(square, expected.to(torch::kDouble)));
    EXPECT_TRUE(square.requires_grad()) << "a call too many changes nothing";
    for (const auto& tensor : {flat, square}) {
      EXPECT_FALSE(accel::distributed::is_distributed(tensor));
    }
    // Brought together twice: the same rows.
    EXPECT_TRUE(torch::equal(accelerator.gather_for_metrics(flat), flat));

    // Numbers are those of the whole batch, also where Accelerate's calls are
    // kept, which do not count them once for each process.
    const auto mean = x.to(torch::kFloat).mean();
    EXPECT_FLOAT_EQ(mean.item<float>(), (size - 1) / 2.0F);
    EXPECT_EQ(x.ge(1).sum().item<int64_t>(), size - 1);
    for (const char* reduction : {"mean", "max", "min"}) {
      const auto reduced = accelerator.reduce(mean, reduction);
      EXPECT_EQ(reduced.scalar_type(), torch::kFloat);
      EXPECT_EQ(reduced.dim(), 0);
      EXPECT_FLOAT_EQ(reduced.item<float>(), (size - 1) / 2.0F) << reduction;
      EXPECT_FALSE(accel::distributed::is_distributed(reduced));
    }
    if (accel::distributed::is_distributed(x)) {
      EXPECT_TRUE(contains(
          error_of([&] { accelerator.reduce(mean); }), "use item() or full"));
      EXPECT_TRUE(contains(
          error_of([&] { accelerator.gather(x); }), "use gather_for_metrics"));
      EXPECT_TRUE(contains(
          error_of([&] { accelerator.split_between_processes(x); }),
          "Give it full(tensor)"));
    }
  }
  // What everybody has in full stays as it is.
  const auto whole = torch::full({2}, rank);
  EXPECT_TRUE(accelerator.gather_for_metrics(whole).is_same(whole));
}

TEST(Metrics, AreThoseOfTheGlobalBatch) {
  for (const int processes : {1, 2, 3}) {
    accel::test::run_and_expect_success("gathers_for_metrics", processes);
  }
}

ACCEL_RANK_FUNCTION(plain_collectives) {
  Accelerator accelerator;
  const auto rank = accelerator.process_index();
  const auto gathered = accelerator.gather(torch::tensor(rank));
  EXPECT_TRUE(torch::equal(gathered, torch::arange(2)));
  EXPECT_TRUE(torch::equal(
      accelerator.gather(torch::full({1, 2}, rank)),
      torch::tensor({{0, 0}, {1, 1}})));

  const auto t = torch::tensor(
      rank == 0 ? std::vector<double>{1, 2} : std::vector<double>{2, 4});
  EXPECT_TRUE(torch::equal(
      accelerator.reduce(t), torch::tensor({3.0, 6.0}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(
      accelerator.reduce(t, "mean"),
      torch::tensor({1.5, 3.0}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(
      accelerator.reduce(t.to(torch::kShort), "max"),
      torch::tensor({2, 4}, torch::kShort)));
  EXPECT_TRUE(torch::equal(
      accelerator.reduce(t.to(torch::kInt)), torch::tensor({3, 6}, torch::kInt)));
  EXPECT_TRUE(contains(
      error_of([&] { accelerator.reduce(t, "none"); }), "known are"));

  auto own = torch::tensor({5 + rank});
  EXPECT_TRUE(accelerator.broadcast(own, 1).is_same(own));
  EXPECT_EQ(own.item<int64_t>(), 6);

  const auto ragged = torch::ones({1 + rank, 2});
  EXPECT_TRUE(torch::equal(
      accelerator.pad_across_processes(ragged, 0, -1),
      rank == 0 ? torch::tensor({{1.F, 1.F}, {-1.F, -1.F}}) : ragged));
  EXPECT_TRUE(torch::equal(
      accelerator.pad_across_processes(torch::ones({1 + rank}), 0, 0, true),
      rank == 0 ? torch::tensor({0.F, 1.F}) : torch::ones({2})));

  // Accelerate's way: repeated samples of the last batch go away.
  auto loader = std::make_shared<accel::DataLoaderState>();
  GradientState::get().enter(loader);
  loader->remainder = 3;
  EXPECT_EQ(accelerator.gather_for_metrics(torch::ones({2})).size(0), 4);
  loader->end_of_dataloader = true;
  EXPECT_EQ(accelerator.gather_for_metrics(torch::ones({2})).size(0), 3);
  EXPECT_TRUE(contains(
      error_of([&] { accelerator.gather(ragged); }), "on process 1"));
}

TEST(Metrics, PlainCollectives) {
  accel::test::run_and_expect_success("plain_collectives", 2);
}

ACCEL_RANK_FUNCTION(output) {
  Accelerator accelerator;
  accelerator.print("a", 1, 2.5);
  accelerator.print();
  EXPECT_EQ(accelerator.printf("%d|%s\n", 7, "b"), 4);
  accelerator.cout() << std::setprecision(3) << 3.14159 << std::endl;
  EXPECT_EQ(accelerator.cout().precision(), 3);
  EXPECT_TRUE(accelerator.cout().good());
  accelerator.cerr() << "to the error stream\n";
  const auto only = accelerator.on_main_process([] { return 5; });
  EXPECT_EQ(only.has_value(), accelerator.is_main_process());
  const std::string path = std::getenv("ACCEL_TEST_FILE") +
      std::to_string(accelerator.process_index());
  accelerator.save(torch::ones({2}), path);
  EXPECT_EQ(
      std::ifstream(path).good(), accelerator.is_main_process());
  std::remove(path.c_str());
}

TEST(Output, OnTheMainProcessOnly) {
  accel::test::RunOptions options;
  options.environment["ACCEL_TEST_FILE"] =
      ::testing::TempDir() + "accel_output_" + std::to_string(::getpid()) + "_";
  const auto results =
      accel::test::run_and_expect_success("output", 3, options);
  EXPECT_EQ(results[0].output, "a 1 2.5\n\n7|b\n3.14\n");
  EXPECT_EQ(results[0].error, "to the error stream\n");
  for (const int rank : {1, 2}) {
    EXPECT_EQ(results[rank].output, "");
    EXPECT_EQ(results[rank].error, "");
  }
}

TEST(Clip, ReturnsTheNormBeforeClipping) {
  Accelerator accelerator;
  auto weight = torch::zeros({2}).set_requires_grad(true);
  weight.mutable_grad() = torch::tensor({3.F, 4.F});
  EXPECT_DOUBLE_EQ(accelerator.clip_grad_norm_(weight, 1.0), 5.0);
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::tensor({0.6F, 0.8F})));
  accelerator.clip_grad_value_({weight}, 0.7);
  EXPECT_FLOAT_EQ(weight.grad()[1].item<float>(), 0.7F);
}

TEST(MixedPrecision, ForwardInBfloat16BackwardAndStepInFloat32) {
  Accelerator accelerator(
      AcceleratorOptions().mixed_precision(accel::MixedPrecision::kBF16));
  torch::nn::Linear net(4, 4);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), torch::optim::SGDOptions(1.0));
  accelerator.prepare(net, optimizer);
  const auto x = torch::ones({2, 4});
  {
    auto step = accelerator.accumulate(net);
    const auto out = net->forward(x);
    EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
    // A product with the weight itself is what autocast keeps a copy of.
    const auto before = torch::matmul(x, net->weight).sum().item<float>();
    accelerator.backward(out.to(torch::kFloat).sum());
    EXPECT_EQ(net->weight.grad().scalar_type(), torch::kFloat);
    optimizer.step();
    EXPECT_NE(torch::matmul(x, net->weight).sum().item<float>(), before);
  }
  EXPECT_EQ(net->forward(x).scalar_type(), torch::kFloat);
  const auto autocast = accelerator.autocast();
  EXPECT_EQ(net->forward(x).scalar_type(), torch::kBFloat16);
}

TEST(GradScaler, FollowsAcceleratesSequence) {
  accel::GradScaler scaler(
      accel::GradScalerOptions().init_scale(8).growth_interval(2));
  auto weight = torch::ones({1}).set_requires_grad(true);
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.1));
  const std::vector<int> overflows = {0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0};
  const std::vector<double> scales = {
      8, 16, 8, 8, 16, 16, 32, 16, 8, 8, 16, 16};
  const std::vector<int64_t> trackers = {1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1};
  for (size_t i = 0; i < overflows.size(); ++i) {
    optimizer.zero_grad();
    auto loss = weight.sum();
    if (overflows[i] == 1) {
      loss = loss * std::numeric_limits<float>::infinity();
    }
    scaler.scale(loss).backward();
    bool called = false;
    EXPECT_EQ(
        scaler.step(optimizer, [&] { called = true; }), overflows[i] == 0);
    EXPECT_EQ(called, overflows[i] == 0);
    if (called) {
      EXPECT_FLOAT_EQ(weight.grad().item<float>(), 1.0F);
    }
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), scales[i]) << i;
    EXPECT_EQ(scaler.growth_tracker(), trackers[i]) << i;
  }
}

TEST(Optimizer, StaysItsTorchType) {
  torch::nn::Linear net(2, 1);
  using Adam = accel::AcceleratedOptimizer<torch::optim::Adam>;
  std::shared_ptr<torch::optim::Optimizer> shared =
      std::make_shared<Adam>(net->parameters(), torch::optim::AdamOptions(0.1));
  // Without an Accelerator it is a plain Adam.
  net->forward(torch::ones({1, 2})).sum().backward();
  const auto before = net->weight.detach().clone();
  shared->step();
  EXPECT_FALSE(torch::equal(net->weight, before));
  const std::string path = ::testing::TempDir() + "accel_optimizer_" +
      std::to_string(::getpid()) + ".pt";
  torch::save(*shared, path);
  Adam other(net->parameters(), torch::optim::AdamOptions(0.5));
  torch::load(other, path);
  std::remove(path.c_str());
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.1);
  EXPECT_EQ(other.state().size(), 2U);
}
