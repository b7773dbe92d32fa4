// Loaders whose batches are structs of the program's own.

#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

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

} // namespace

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
