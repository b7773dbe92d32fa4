// Loaders whose batches are structs of the program's own.

#include "data_sets.h"
#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using torch::data::samplers::SequentialSampler;

namespace {

/// Ids of users and items, negatives per user, and what is no sample's: a table of
/// three rows and the sum.
struct Interactions {
  torch::Tensor users, negatives, table;
  int64_t sum = 0;
};

struct InteractionData
    : torch::data::datasets::BatchDataset<InteractionData, Interactions> {
  Interactions get_batch(torch::ArrayRef<size_t> indices) override {
    Interactions batch;
    std::vector<int64_t> users(indices.begin(), indices.end());
    batch.users = torch::tensor(users);
    batch.negatives = batch.users.unsqueeze(1) * torch::tensor({10, 100});
    batch.table = torch::arange(3);
    for (const auto user : users) {
      batch.sum += user;
    }
    return batch;
  }
  std::optional<size_t> size() const override {
    return 20;
  }
};

/// Graph i is a ring of 3 + i % 3 nodes; a batch numbers the nodes of its graphs.
struct Graphs {
  torch::Tensor labels, nodes, edges, graph, offsets, classes;
};

struct GraphData : torch::data::datasets::BatchDataset<GraphData, Graphs> {
  Graphs get_batch(torch::ArrayRef<size_t> indices) override {
    std::vector<int64_t> labels, from, to, graph, offsets{0};
    for (const auto index : indices) {
      const auto first = static_cast<int64_t>(graph.size());
      const auto nodes = static_cast<int64_t>(3 + index % 3);
      for (int64_t i = 0; i < nodes; ++i) {
        graph.push_back(static_cast<int64_t>(labels.size()));
        from.push_back(first + i);
        to.push_back(first + (i + 1) % nodes);
      }
      labels.push_back(nodes);
      offsets.push_back(first + nodes);
    }
    const auto count = static_cast<int64_t>(graph.size());
    return {
        torch::tensor(labels),
        torch::arange(2 * count).view({count, 2}),
        torch::stack({torch::tensor(from), torch::tensor(to)}),
        torch::tensor(graph),
        torch::tensor(offsets),
        torch::ones({3})};
  }
  std::optional<size_t> size() const override {
    return 20;
  }
};

void expect_cut(
    Accelerator& accelerator,
    const torch::Tensor& found,
    const torch::Tensor& whole,
    int64_t dim) {
  ASSERT_EQ(found.sizes(), whole.sizes());
  if (accelerator.num_processes() > 1) {
    ASSERT_TRUE(accel::distributed::is_distributed(found));
    EXPECT_TRUE(
        accel::distributed::placements(found).at(0) ==
        accel::distributed::Shard(dim));
  }
  EXPECT_TRUE(torch::equal(accelerator.full(found), whole));
}

} // namespace

ACCEL_RANK_FUNCTION(loader_of_graphs) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  auto theirs = torch::data::make_data_loader<SequentialSampler>(GraphData(), 8);
  auto ours = accel::data::make_data_loader<SequentialSampler>(GraphData(), 8);
  auto expected = theirs->begin();
  for (auto& batch : *ours) {
    expect_cut(accelerator, batch.labels, expected->labels, 0);
    expect_cut(accelerator, batch.nodes, expected->nodes, 0);
    expect_cut(accelerator, batch.edges, expected->edges, 1);
    expect_cut(accelerator, batch.graph, expected->graph, 0);
    // One more than samples, for whoever reads them one by one; and fewer, which
    // belong to none.
    EXPECT_FALSE(accel::distributed::is_distributed(batch.offsets));
    EXPECT_FALSE(accel::distributed::is_distributed(batch.classes));
    ++expected;
  }
  EXPECT_TRUE(expected == theirs->end());
}

TEST(DataLoaderOfStructs, WhatIsPackedIsCutBesideTheSamples) {
  for (const int world : {1, 2, 4}) {
    accel::test::run_and_expect_success("loader_of_graphs", world);
  }
}

ACCEL_RANK_FUNCTION(loader_of_structs) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  auto theirs =
      torch::data::make_data_loader<SequentialSampler>(InteractionData(), 8);
  std::vector<Interactions> expected;
  for (auto& batch : *theirs) {
    expected.push_back(batch);
  }
  auto ours =
      accel::data::make_data_loader<SequentialSampler>(InteractionData(), 8);
  size_t i = 0;
  for (auto& batch : *ours) {
    ASSERT_LT(i, expected.size());
    const auto& whole = expected[i++];
    const bool shared = accelerator.num_processes() > 1;
    EXPECT_EQ(accel::distributed::is_distributed(batch.users), shared);
    EXPECT_EQ(accel::distributed::is_distributed(batch.negatives), shared);
    // Not of as many rows as the batch has samples.
    EXPECT_FALSE(accel::distributed::is_distributed(batch.table));
    EXPECT_EQ(batch.sum, whole.sum);
    const auto all = accelerator.full(batch);
    EXPECT_TRUE(torch::equal(all.users, whole.users));
    EXPECT_TRUE(torch::equal(all.negatives, whole.negatives));
    EXPECT_TRUE(torch::equal(all.table, whole.table));
  }
  EXPECT_EQ(i, 3U);
}

TEST(DataLoaderOfStructs, TensorsWithTheSamplesRowsAreDistributed) {
  for (const int world : {1, 2, 4}) {
    accel::test::run_and_expect_success("loader_of_structs", world);
  }
}

namespace {

/// The same interactions and graphs as streams.
template <typename Data, typename Batch>
struct Stream : accel::test::UnsizedStream<Stream<Data, Batch>, Batch> {
  std::optional<Batch> get_batch(size_t size) override {
    std::vector<size_t> indices;
    for (; indices.size() < size && next < 20; ++next) {
      indices.push_back(next);
    }
    return indices.empty() ? std::nullopt
                           : std::optional<Batch>(data.get_batch(indices));
  }
  void reset() override {
    next = 0;
  }
  Data data;
  size_t next = 0;
};

struct Pairs {
  torch::Tensor x, y;
  std::string name;
  double weight = 0;
};

struct PairData : torch::data::datasets::BatchDataset<PairData, Pairs> {
  Pairs get_batch(torch::ArrayRef<size_t> indices) override {
    const std::vector<int64_t> rows(indices.begin(), indices.end());
    const auto x = torch::tensor(rows);
    return {x.unsqueeze(1) * torch::ones({3}), x, "pairs", x.sum().item<double>()};
  }
  std::optional<size_t> size() const override {
    return 20;
  }
};

void stream_of_structs(bool dispatch) {
  Accelerator accelerator(AcceleratorOptions()
                              .cpu(true)
                              .match_single_device(true)
                              .dispatch_batches(dispatch));
  PairData data;
  size_t first = 0;
  auto pairs = accel::data::make_data_loader(Stream<PairData, Pairs>(), 8);
  for (auto& batch : *pairs) {
    std::vector<size_t> indices;
    for (; indices.size() < 8 && first < 20; ++first) {
      indices.push_back(first);
    }
    const auto whole = data.get_batch(indices);
    expect_cut(accelerator, batch.x, whole.x, 0);
    expect_cut(accelerator, batch.y, whole.y, 0); // of the short one, too
    EXPECT_EQ(batch.name, whole.name);
    EXPECT_EQ(batch.weight, whole.weight);
  }
  EXPECT_EQ(first, 20U);
  // Where tensors have other numbers of rows, full batches are known by their size.
  auto theirs = torch::data::make_data_loader<SequentialSampler>(GraphData(), 8);
  auto expected = theirs->begin();
  auto graphs = accel::data::make_data_loader(Stream<GraphData, Graphs>(), 8);
  for (auto& batch : *graphs) {
    if (expected->labels.size(0) == 8) {
      expect_cut(accelerator, batch.labels, expected->labels, 0);
      expect_cut(accelerator, batch.nodes, expected->nodes, 0);
      expect_cut(accelerator, batch.edges, expected->edges, 1);
    } else {
      EXPECT_TRUE(batch.labels.equal(expected->labels));
      EXPECT_TRUE(batch.edges.equal(expected->edges));
    }
    EXPECT_TRUE(batch.offsets.equal(expected->offsets));
    ++expected;
  }
  EXPECT_TRUE(expected == theirs->end());
}

} // namespace

ACCEL_RANK_FUNCTION(stream_of_structs_sent) {
  stream_of_structs(/*dispatch=*/true);
}
ACCEL_RANK_FUNCTION(stream_of_structs_read_by_all) {
  stream_of_structs(/*dispatch=*/false);
}

TEST(DataLoaderOfStructs, StreamsAreDistributed) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("stream_of_structs_sent", world);
    accel::test::run_and_expect_success("stream_of_structs_read_by_all", world);
  }
}

// Where each process has batches of its own, the last ones of a pass are cut. That
// nobody knows how is said before the first one, not hours later.
ACCEL_RANK_FUNCTION(structs_that_nobody_can_cut) {
  Accelerator accelerator(AcceleratorOptions().cpu(true).dispatch_batches(true));
  const bool several = accelerator.num_processes() > 1;
  auto pairs = accel::data::make_data_loader<SequentialSampler>(PairData(), 4);
  const auto error = accel::test::error_of([&] { pairs->begin(); });
  EXPECT_EQ(accel::test::contains(error, "Specialise accel::data::RowsOf"), several)
      << error;
  // Without the last ones nothing is cut.
  auto whole = accel::data::make_data_loader<SequentialSampler>(
      PairData(), torch::data::DataLoaderOptions(4).drop_last(true));
  int64_t batches = 0;
  for (auto& batch : *whole) {
    EXPECT_EQ(batch.x.size(0), 4);
    ++batches;
  }
  EXPECT_EQ(batches, 5 / accelerator.num_processes());
}

TEST(DataLoaderOfStructs, ThatNobodyCanCutAreAnErrorAtOnce) {
  for (const int world : {1, 2}) {
    accel::test::run_and_expect_success("structs_that_nobody_can_cut", world);
  }
}
