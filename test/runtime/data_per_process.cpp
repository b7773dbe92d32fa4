// `match_single_device` with `split_batches(false)`: N processes print what one
// device prints with N times the batch size.

#include "data_sets.h"
#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

namespace per_process_batch {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::test::NoisyNumbers;
using accel::test::Numbers;
using torch::data::DataLoaderOptions;
using torch::data::samplers::RandomSampler;
using torch::data::samplers::SequentialSampler;

const auto kPerProcess =
    AcceleratorOptions().match_single_device(true).split_batches(false);

/// What the program was started with: 2 processes with 4, or one with 8.
size_t batch_size() {
  return static_cast<size_t>(std::atoi(std::getenv("ACCEL_TEST_BATCH")));
}

/// A sampler of the program's own, which draws in `next`.
struct Drawing : torch::data::samplers::Sampler<> {
  explicit Drawing(size_t size) : size(size) {}
  void reset(std::optional<size_t> = std::nullopt) override {
    given = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch) override {
    std::vector<size_t> indices;
    for (; given < size && indices.size() < batch; ++given) {
      indices.push_back(static_cast<size_t>(
          torch::randint(static_cast<int64_t>(size), {1}).item<int64_t>()));
    }
    return indices.empty() ? std::nullopt : std::make_optional(indices);
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t size;
  size_t given = 0;
};

/// Sample i is ([i + noise, i + noise], i); the noise is drawn for a batch.
struct Stream : accel::test::UnsizedStream<Stream, torch::data::Example<>> {
  std::optional<torch::data::Example<>> get_batch(size_t wanted) override {
    const int64_t rows = std::min(static_cast<int64_t>(wanted), 21 - position);
    if (rows <= 0) {
      return std::nullopt;
    }
    const auto target = torch::arange(position, position + rows);
    position += rows;
    return torch::data::Example<>(
        target.to(torch::kDouble).unsqueeze(1).repeat({1, 2}) +
            torch::rand({rows, 2}, torch::kDouble),
        target);
  }
  void reset() override {
    position = 0;
  }
  int64_t position = 0;
};

/// Numbers in four chunks of five.
struct Chunks : torch::data::datasets::ChunkDataReader<torch::data::Example<>> {
  using BatchType = ChunkType;
  using DataType = ExampleType;
  BatchType read_chunk(size_t index) override {
    BatchType chunk;
    for (size_t i = 5 * index; i < 5 * index + 5; ++i) {
      chunk.push_back(Numbers(20).get(i));
    }
    return chunk;
  }
  size_t chunk_count() override {
    return 4;
  }
  void reset() override {}
};

/// Trains for two epochs and prints what a program prints; the numbers of
/// samples are those of the whole batches.
template <typename Loader>
void train(Accelerator& accelerator, const char* name, Loader& loader) {
  torch::manual_seed(3);
  torch::nn::Sequential net(
      torch::nn::Linear(2, 4),
      torch::nn::BatchNorm1d(4),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(4, 1));
  net->to(torch::kDouble);
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      net->parameters(), 0.01);
  accel::AcceleratedScheduler<torch::optim::StepLR> scheduler(optimizer, 2, 0.5);
  accelerator.prepare(net, optimizer, scheduler);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = accelerator.accumulate(net);
      const auto target = batch.target.reshape({-1});
      auto loss = (net->forward(batch.data).reshape({-1}) -
                   target.to(torch::kDouble))
                      .pow(2)
                      .mean();
      optimizer.zero_grad();
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      accelerator.cout() << name << ' ' << epoch << ' '
                         << batch.data.size(0) << ':';
      const auto ids = accelerator.full(target);
      for (int64_t i = 0; i < ids.numel(); ++i) {
        accelerator.cout() << ' ' << ids[i].template item<int64_t>();
      }
      accelerator.printf(
          " %.8f %g %d\n",
          loss.template item<double>(),
          optimizer.param_groups()[0].options().get_lr(),
          accel::GradientState::get().end_of_dataloader());
      std::cout << std::flush;
    }
  }
}

template <typename Dataset>
auto stacked(Dataset dataset) {
  return dataset.map(torch::data::transforms::Stack<>());
}

void train_with_loaders() {
  Accelerator accelerator(kPerProcess);
  EXPECT_FALSE(accelerator.state().options().split_batches);
  const auto options = DataLoaderOptions(batch_size());
  {
    auto loader =
        accel::data::make_data_loader<SequentialSampler>(stacked(Numbers(21)), options);
    train(accelerator, "short last batch", loader);
  }
  {
    auto loader = accel::data::make_data_loader<RandomSampler>(
        stacked(NoisyNumbers(21, 3)), options);
    train(accelerator, "drawn samples", loader);
  }
  {
    auto loader = accel::data::make_data_loader<RandomSampler>(
        stacked(Numbers(21)), DataLoaderOptions(options).drop_last(true));
    train(accelerator, "drop_last", loader);
  }
  {
    auto loader = accel::data::make_data_loader<RandomSampler>(
        stacked(Numbers(21)), DataLoaderOptions(options).workers(2));
    train(accelerator, "workers", loader);
  }
  {
    auto loader = accel::data::make_data_loader(
        stacked(Numbers(21)), Drawing(21), options);
    train(accelerator, "drawing sampler", loader);
  }
  {
    auto loader = accel::data::make_data_loader(Stream(), options);
    train(accelerator, "stream", loader);
  }
  for (const size_t workers : {0, 1}) {
    using Chunked = torch::data::datasets::
        ChunkDataset<Chunks, SequentialSampler, SequentialSampler>;
    auto loader = accel::data::make_data_loader(
        torch::data::datasets::make_shared_dataset<Chunked>(
            Chunks(),
            SequentialSampler(4),
            SequentialSampler(5),
            torch::data::datasets::ChunkDatasetOptions(1, batch_size()))
            .map(torch::data::transforms::Stack<>()),
        DataLoaderOptions(options).workers(workers));
    train(accelerator, "chunks", loader);
  }
}

} // namespace per_process_batch

ACCEL_RANK_FUNCTION(per_process_loaders) {
  per_process_batch::train_with_loaders();
}

TEST(PerProcessBatch, PrintsWhatOneDevicePrintsWithLargerBatches) {
  for (const int processes : {2, 3}) {
    accel::test::RunOptions small, large;
    small.environment["ACCEL_TEST_BATCH"] = "4";
    large.environment["ACCEL_TEST_BATCH"] = std::to_string(4 * processes);
    const auto expected = accel::test::run_and_expect_success(
        "per_process_loaders", 1, large)[0].output;
    // Two epochs with each of the eight loaders.
    EXPECT_EQ(
        std::count(expected.begin(), expected.end(), '\n'),
        processes == 2 ? 46 : 30);
    EXPECT_EQ(
        accel::test::run_and_expect_success(
            "per_process_loaders", processes, small)[0].output,
        expected);
  }
}

// Process 0 reads for all; the end of the loop of accumulation windows.
ACCEL_RANK_FUNCTION(per_process_dispatched) {
  accel::Accelerator accelerator(accel::AcceleratorOptions(per_process_batch::kPerProcess)
                              .dispatch_batches(true)
                              .gradient_accumulation_steps(2));
  auto loader =
      accel::data::make_data_loader<torch::data::samplers::RandomSampler>(
          per_process_batch::stacked(accel::test::NoisyNumbers(21)),
          per_process_batch::batch_size());
  per_process_batch::train(accelerator, "dispatched", loader);
}

TEST(PerProcessBatch, AlsoWhereProcessZeroReads) {
  accel::test::RunOptions small, large;
  small.environment["ACCEL_TEST_BATCH"] = "4";
  large.environment["ACCEL_TEST_BATCH"] = "8";
  EXPECT_EQ(
      accel::test::run_and_expect_success("per_process_dispatched", 2, small)[0]
          .output,
      accel::test::run_and_expect_success("per_process_dispatched", 1, large)[0]
          .output);
}

// The environment decides; and the default is the batch of one device.
ACCEL_RANK_FUNCTION(per_process_by_environment) {
  const auto rows = [](const accel::AcceleratorOptions& options) {
    accel::Accelerator accelerator(options);
    auto loader = accel::data::make_data_loader<
        torch::data::samplers::SequentialSampler>(
        per_process_batch::stacked(accel::test::Numbers(20)), 4);
    return loader->begin()->data.size(0);
  };
  const auto match = accel::AcceleratorOptions().match_single_device(true);
  EXPECT_EQ(rows(match), 4);
  EXPECT_EQ(rows(accel::AcceleratorOptions(match).split_batches(true)), 4);
  EXPECT_EQ(rows(per_process_batch::kPerProcess), 8);
  ::setenv("ACCEL_SPLIT_BATCHES", "0", 1);
  EXPECT_EQ(rows(match), 8);
  EXPECT_EQ(rows(accel::AcceleratorOptions(match).split_batches(true)), 8);
  EXPECT_EQ(rows(accel::AcceleratorOptions().split_batches(true)), 4);
  ::setenv("ACCEL_SPLIT_BATCHES", "1", 1);
  EXPECT_EQ(rows(per_process_batch::kPerProcess), 4);
  EXPECT_EQ(rows(accel::AcceleratorOptions()), 2);
  ::unsetenv("ACCEL_SPLIT_BATCHES");
  // As in Accelerate.
  EXPECT_EQ(rows(accel::AcceleratorOptions()), 4);
  EXPECT_EQ(rows(accel::AcceleratorOptions().split_batches(true)), 2);
}

TEST(PerProcessBatch, TheEnvironmentDecides) {
  accel::test::run_and_expect_success("per_process_by_environment", 2);
}
