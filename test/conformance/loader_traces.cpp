// The same rules end to end: real processes, real data loaders.

#include "golden_files.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/gradient_state.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>

namespace {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using accel::test::golden;
using nlohmann::json;
using torch::data::DataLoaderOptions;
using torch::data::samplers::SequentialSampler;

/// Sample i is the number i.
struct Numbers : torch::data::datasets::BatchDataset<Numbers, std::vector<size_t>> {
  explicit Numbers(size_t size) : count(size) {}
  std::vector<size_t> get_batch(torch::ArrayRef<size_t> indices) override {
    return indices.vec();
  }
  std::optional<size_t> size() const override {
    return count;
  }
  size_t count;
};

bool flag(const char* name) {
  return std::string(std::getenv(name)) == "1";
}

AcceleratorOptions options_of_run() {
  return AcceleratorOptions()
      .split_batches(flag("TEST_SPLIT_BATCHES"))
      .even_batches(flag("TEST_EVEN_BATCHES"));
}

accel::test::RunOptions run_options(bool split, bool even) {
  accel::test::RunOptions options;
  options.environment["TEST_SPLIT_BATCHES"] = split ? "1" : "0";
  options.environment["TEST_EVEN_BATCHES"] = even ? "1" : "0";
  return options;
}

/// What the program sees of one pass.
json trace_of(int64_t size, DataLoaderOptions options) {
  auto loader = accel::data::make_data_loader<SequentialSampler>(
      Numbers(static_cast<size_t>(size)), options);
  auto trace = json::array();
  for (const auto& batch : *loader) {
    const auto& state = GradientState::get();
    trace.push_back(
        {{"b", batch},
         {"end", state.end_of_dataloader()},
         {"rem", state.remainder()}});
  }
  EXPECT_FALSE(GradientState::get().in_dataloader());
  return trace;
}

} // namespace

ACCEL_RANK_FUNCTION(loader_batches) {
  const bool split = flag("TEST_SPLIT_BATCHES");
  const bool even = flag("TEST_EVEN_BATCHES");
  Accelerator accelerator(options_of_run());
  const auto rank = accelerator.state().process_index();
  int64_t compared = 0;
  for (const auto& record : golden("sharding.json").at("batch_sampler_shard")) {
    if (record.at("P") != accelerator.state().num_processes() ||
        record.at("split_batches") != split ||
        record.at("even_batches") != even) {
      continue;
    }
    SCOPED_TRACE(record.dump());
    ++compared;
    auto options = DataLoaderOptions(record.at("batch_size").get<size_t>())
                       .drop_last(record.at("drop_last").get<bool>());
    const int64_t size = record.at("n");
    if (record.contains("error")) {
      EXPECT_THROW(trace_of(size, options), c10::Error);
      continue;
    }
    auto batches = json::array();
    for (const auto& step : trace_of(size, options)) {
      batches.push_back(step.at("b"));
      EXPECT_EQ(
          step.at("end"), batches.size() == record.at("out").at(rank).size());
    }
    EXPECT_EQ(batches, record.at("out").at(rank));
    // Workers must not change anything; they are slow to start.
    if (size % 5 == 3) {
      auto with_workers = json::array();
      for (const auto& step : trace_of(size, options.workers(2))) {
        with_workers.push_back(step.at("b"));
      }
      EXPECT_EQ(with_workers, batches);
    }
  }
  EXPECT_GT(compared, 0);
}

// One process is not sharded, by Accelerate neither: it sees the sampler's
// batches (test/runtime).
TEST(DataLoader, DealsBatchesAsAccelerateDoes) {
  for (const int world : {2, 3, 4}) {
    for (const bool split : {false, true}) {
      for (const bool even : {false, true}) {
        accel::test::run_and_expect_success(
            "loader_batches", world, run_options(split, even));
      }
    }
  }
}

ACCEL_RANK_FUNCTION(loader_flags) {
  const bool split = flag("TEST_SPLIT_BATCHES");
  Accelerator accelerator(options_of_run());
  const auto rank = accelerator.state().process_index();
  int64_t compared = 0;
  for (const auto& record : golden("mp2.json").at("loaders")) {
    if (record.at("mode") != "shard" || record.at("split") != split ||
        record.contains("error")) {
      continue;
    }
    SCOPED_TRACE(record.dump());
    ++compared;
    const auto trace = trace_of(
        record.at("n"),
        DataLoaderOptions(record.at("bs").get<size_t>())
            .drop_last(record.at("drop_last").get<bool>()));
    EXPECT_EQ(trace, record.at("out").at(rank));
  }
  EXPECT_GT(compared, 0);
}

TEST(DataLoader, TellsEndAndRemainderAsAccelerateDoes) {
  for (const bool split : {false, true}) {
    accel::test::run_and_expect_success(
        "loader_flags", 2, run_options(split, /*even=*/true));
  }
}
