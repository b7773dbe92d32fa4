// The same rules end to end: real processes, real data loaders.

#include "golden_files.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/gradient_state.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

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

/// The same from a data set that says itself what comes next.
struct NumberStream : torch::data::datasets::
                          StatefulDataset<NumberStream, std::vector<size_t>> {
  explicit NumberStream(size_t size) : count(size) {}
  std::optional<std::vector<size_t>> get_batch(size_t wanted) override {
    std::vector<size_t> batch;
    for (; batch.size() < wanted && position < count; ++position) {
      batch.push_back(position);
    }
    return batch.empty() ? std::nullopt : std::make_optional(batch);
  }
  std::optional<size_t> size() const override {
    return std::nullopt;
  }
  void reset() override {
    position = 0;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

  size_t count;
  size_t position = 0;
};

std::string text(const char* name) {
  return std::getenv(name);
}

bool flag(const char* name) {
  return text(name) == "1";
}

/// What the program sees of one pass.
template <typename Loader>
json trace_of_pass(Loader& loader) {
  auto trace = json::array();
  for (const auto& batch : loader) {
    const auto& state = GradientState::get();
    trace.push_back(
        {{"b", batch},
         {"end", state.end_of_dataloader()},
         {"rem", state.remainder()}});
  }
  EXPECT_FALSE(GradientState::get().in_dataloader());
  return trace;
}

json trace_of(int64_t size, DataLoaderOptions options) {
  auto loader = accel::data::make_data_loader<SequentialSampler>(
      Numbers(static_cast<size_t>(size)), options);
  return trace_of_pass(*loader);
}

json trace_of_stream(int64_t size, DataLoaderOptions options) {
  auto loader = accel::data::make_data_loader(
      NumberStream(static_cast<size_t>(size)), options);
  return trace_of_pass(*loader);
}

void compare_batches(bool split, bool even) {
  Accelerator accelerator(
      AcceleratorOptions().split_batches(split).even_batches(even));
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

} // namespace

ACCEL_RANK_FUNCTION(loader_batches) {
  for (const bool split : {false, true}) {
    for (const bool even : {false, true}) {
      compare_batches(split, even);
    }
  }
}

// One process is not sharded, by Accelerate neither: it sees the sampler's
// batches (test/runtime).
TEST(DataLoader, DealsBatchesAsAccelerateDoes) {
  for (const int world : {2, 3, 4}) {
    accel::test::run_and_expect_success("loader_batches", world);
  }
}

namespace {

/// What we give where Accelerate gave what deviations.json lists; counts them.
json expected_trace(
    const json& record,
    size_t rank,
    int64_t world,
    std::map<std::string, int64_t>& deviations) {
  auto trace = record.at("out").at(rank);
  const std::string mode = record.at("mode");
  if (trace.is_object()) {
    EXPECT_TRUE(record.at("drop_last").get<bool>());
    ++deviations["dispatch-nothing"];
    return json::array();
  }
  const auto& first = record.at("out").at(0);
  for (size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].at("b").empty() && mode.find("dispatch") != mode.npos) {
      // One sample for more than two processes.
      trace[i]["b"] = first.at(0).at("b");
      ++deviations["dispatch-small-first"];
    }
    if (mode == "iter_shard" && trace[i].at("end") &&
        !record.at("drop_last")) {
      const int64_t step = record.at("bs").get<int64_t>() *
          (record.at("split") ? 1 : world);
      trace[i]["rem"] = record.at("n").get<int64_t>() % step;
      ++deviations["iterable-remainder"];
    }
  }
  return trace;
}

} // namespace

ACCEL_RANK_FUNCTION(recorded_loaders) {
  const bool split = flag("TEST_SPLIT_BATCHES");
  const auto mode = text("TEST_MODE");
  AcceleratorOptions options;
  options.split_batches(split);
  if (mode == "dispatch" || mode == "iter_shard") {
    options.dispatch_batches(mode == "dispatch");
  }
  Accelerator accelerator(options);
  const auto world = accelerator.num_processes();
  std::map<std::string, int64_t> deviations;
  int64_t compared = 0;
  for (const auto& record :
       golden("mp" + std::to_string(world) + ".json").at("loaders")) {
    if (record.at("mode") != mode || record.at("split") != split) {
      continue;
    }
    SCOPED_TRACE(record.dump());
    ++compared;
    const bool stream = mode.rfind("iter_", 0) == 0;
    const auto trace = [&](size_t workers) {
      const auto loading =
          DataLoaderOptions(record.at("bs").get<size_t>())
              .drop_last(record.at("drop_last").get<bool>())
              .workers(workers);
      return stream ? trace_of_stream(record.at("n"), loading)
                    : trace_of(record.at("n"), loading);
    };
    if (record.contains("error")) {
      EXPECT_THROW(trace(0), c10::Error);
      continue;
    }
    const auto expected = expected_trace(
        record,
        static_cast<size_t>(accelerator.process_index()),
        world,
        deviations);
    EXPECT_EQ(trace(0), expected);
    // Workers must not change anything; they are slow to start.
    if (record.at("n") == 7 && !split) {
      EXPECT_EQ(trace(stream ? 1 : 2), expected);
    }
  }
  EXPECT_GT(compared, 0);
  if (accel::test::own_golden_files()) {
    accelerator.print(json(deviations).dump());
  }
}

TEST(DataLoader, TellsEndAndRemainderAsAccelerateDoes) {
  std::map<std::string, int64_t> deviations;
  for (const auto& name : accel::test::golden_files("mp", ".json")) {
    std::set<std::pair<std::string, bool>> kinds;
    for (const auto& record : golden(name).at("loaders")) {
      kinds.emplace(record.at("mode"), record.at("split"));
    }
    for (const auto& [mode, split] : kinds) {
      accel::test::RunOptions options;
      options.environment["TEST_SPLIT_BATCHES"] = split ? "1" : "0";
      options.environment["TEST_MODE"] = mode;
      const auto results = accel::test::run_and_expect_success(
          "recorded_loaders", golden(name).at("P"), options);
      if (accel::test::own_golden_files()) {
        const auto& output = results.at(0).output;
        const auto begin = output.find('{');
        ASSERT_NE(begin, output.npos) << output;
        const auto counted =
            json::parse(output.substr(begin, output.find('}') - begin + 1));
        for (const auto& [id, count] : counted.items()) {
          deviations[id] += count.get<int64_t>();
        }
      }
    }
  }
  for (const auto& [id, count] : deviations) {
    EXPECT_EQ(count, accel::test::deviation(id).at("cases")) << id;
  }
}
