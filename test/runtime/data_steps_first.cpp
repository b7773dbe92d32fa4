// Batches whose collation puts the steps of sequences first, `[steps, samples]`: the
// samples are shared out, dimension 1.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>
#include <accel/distributed/tensor.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace steps_first {

using accel::Accelerator;
using accel::AcceleratorOptions;
using torch::Tensor;

using Sentence = torch::data::Example<Tensor, Tensor>;

/// Sample i has 3 + i % 4 steps.
struct Sentences : torch::data::datasets::Dataset<Sentences, Sentence> {
  Sentence get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    const Tensor words = torch::arange(3 + i % 4) + 10 * i;
    return {words, words + 1};
  }
  std::optional<size_t> size() const override {
    return 20;
  }
};

/// Padded with zeros; `labels`: of the targets the first word alone is kept.
struct Pad : torch::data::transforms::Collation<Sentence, std::vector<Sentence>> {
  explicit Pad(bool labels = false) : labels(labels) {}
  Sentence apply_batch(std::vector<Sentence> samples) override {
    std::vector<Tensor> data;
    std::vector<Tensor> target;
    for (auto& sample : samples) {
      data.push_back(sample.data);
      target.push_back(labels ? sample.target[0] : sample.target);
    }
    return {
        torch::nn::utils::rnn::pad_sequence(data),
        labels ? torch::stack(target)
               : torch::nn::utils::rnn::pad_sequence(target)};
  }
  bool labels;
};

void expect_cut(
    Accelerator& accelerator, const Tensor& found, const Tensor& whole, int64_t dim) {
  ASSERT_EQ(found.sizes(), whole.sizes());
  const bool cut = accelerator.num_processes() > 1 &&
      whole.size(dim) >= accelerator.num_processes();
  ASSERT_EQ(accel::distributed::is_distributed(found), cut);
  if (cut) {
    EXPECT_TRUE(
        accel::distributed::placements(found).at(0) ==
        accel::distributed::Shard(dim));
  }
  EXPECT_TRUE(torch::equal(accelerator.full(found), whole));
}

ACCEL_RANK_FUNCTION(loader_of_steps) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  for (const bool labels : {false, true}) {
    auto data = Sentences().map(Pad(labels));
    // Batches of 8, 8 and 4 samples, of 6 steps.
    auto theirs =
        torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
            data, 8);
    auto ours =
        accel::data::make_data_loader<torch::data::samplers::SequentialSampler>(
            data, 8);
    auto expected = theirs->begin();
    for (auto& batch : *ours) {
      expect_cut(accelerator, batch.data, expected->data, 1);
      // Labels have a row for each sample.
      expect_cut(accelerator, batch.target, expected->target, labels ? 0 : 1);
      ++expected;
    }
    EXPECT_TRUE(expected == theirs->end());
  }
}

TEST(DataStepsFirst, SamplesAreSharedOut) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("loader_of_steps", world);
  }
}

} // namespace steps_first
