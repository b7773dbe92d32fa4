// Random numbers that processes draw in operators on distributed tensors must be those of
// one device: generators in other states are an error at the next backward.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;

namespace {

void train(bool fails, const std::function<void(int64_t rank, torch::nn::Dropout&)>& slip) {
  auto options = AcceleratorOptions().match_single_device(true);
  if (std::getenv("DRAWS_FSDP") != nullptr) {
    options.fsdp_plugin(accel::FullyShardedDataParallelPlugin());
  }
  Accelerator accelerator(options);
  torch::nn::Linear net(6, 4);
  torch::nn::Dropout dropout(0.5);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.1);
  accelerator.prepare(net, optimizer);
  const auto step = [&] {
    const auto x = accelerator.distribute(torch::ones({8, 6}));
    optimizer.zero_grad();
    accelerator.backward(dropout->forward(net->forward(x)).pow(2).mean());
    optimizer.step();
  };
  step();
  slip(accelerator.process_index(), dropout);
  const auto error = error_of([&] {
    for (int i = 0; i < 10; ++i) {
      step();
    }
  });
  EXPECT_EQ(
      error.find("have drawn other random numbers in operators on distributed tensors") !=
          std::string::npos,
      fails)
      << error;
}

} // namespace

ACCEL_RANK_FUNCTION(seeds_with_its_number) {
  train(true, [](int64_t rank, auto&) { torch::manual_seed(1 + rank); });
}

ACCEL_RANK_FUNCTION(draws_alone) {
  train(true, [](int64_t rank, auto&) {
    if (rank == 0) {
      torch::rand({3});
    }
  });
}

ACCEL_RANK_FUNCTION(evaluates_alone) {
  train(true, [](int64_t rank, auto& dropout) { dropout->train(rank == 0); });
}

/// With other numbers in plain tensors, and none in distributed ones; in a generator of
/// one's own.
ACCEL_RANK_FUNCTION(draws_elsewhere) {
  train(false, [](int64_t rank, auto& dropout) {
    dropout->eval();
    torch::manual_seed(rank);
    auto own = at::make_generator<at::CPUGeneratorImpl>(7 + rank);
    torch::rand({3}, own);
  });
}

TEST(RandomDraws, OfProcessesWhoseGeneratorsDifferAreAnError) {
  for (const bool divided : {false, true}) {
    RunOptions options;
    options.environment["DRAWS_FSDP"] =
        divided ? std::optional<std::string>("1") : std::nullopt;
    for (const char* how : {"seeds_with_its_number", "draws_alone", "evaluates_alone"}) {
      run_and_expect_success(how, 2, options);
    }
  }
  run_and_expect_success("seeds_with_its_number", 3);
}

namespace {

struct Noisy : torch::data::datasets::Dataset<Noisy> {
  torch::data::Example<> get(size_t) override {
    return {torch::rand({6}), torch::ones({1})};
  }
  std::optional<size_t> size() const override {
    return 48;
  }
};

} // namespace

/// Workers draw for the samples in any order, which is no error.
ACCEL_RANK_FUNCTION(workers_draw) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::nn::Linear net(6, 1);
  torch::nn::Dropout dropout(0.5);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  auto loader = accel::data::make_data_loader(
      Noisy().map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(8).workers(2));
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    const auto out = dropout->forward(net->forward(batch.data));
    accelerator.backward(torch::mse_loss(out, batch.target));
    optimizer.step();
  }
}

TEST(RandomDraws, OfWorkersAreNoError) {
  run_and_expect_success("workers_draw", 2);
}

TEST(RandomDraws, InPlainTensorsAreNot) {
  run_and_expect_success("draws_elsewhere", 2);
}
