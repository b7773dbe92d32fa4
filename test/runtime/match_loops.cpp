// Loops: windows, workers, samplers, small batches; and an evaluation.

#include "expectations.h"
#include "match_training.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace accel::test::match {

using torch::data::samplers::SequentialSampler;

ACCEL_RANK_FUNCTION(match_loops) {
  const auto net = layers(
      cross_entropy,
      linear(kColumns, 6),
      [] { return torch::nn::BatchNorm1d(6); },
      [] { return torch::nn::Dropout(0.3); },
      linear(6, kClasses));
  Training training;
  // Four batches in windows of three: the last window has one.
  training.window = 3;
  training.clip = 0.5;
  follows_one_device("windows and clipping", net, training);
  training.augments = true;
  follows_one_device("windows and augmentation", net, training);

  training = Training();
  training.augments = true;
  follows_one_device("augmentation", net, training);
  training.with_replacement = true;
  follows_one_device("a sampler that draws", net, training);
  training = Training();
  training.workers = 2;
  follows_one_device("workers", net, training);
  // Every batch has fewer samples than three processes.
  training = Training();
  training.size = 10;
  training.batch = 2;
  follows_one_device("small batches", net, training);
}

TEST(MatchSingleDevice, Loops) {
  run_all("match_loops");
}

// An evaluation: counts, predictions, and what is read of them in memory.
ACCEL_RANK_FUNCTION(match_evaluation) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::manual_seed(5);
  torch::nn::Sequential net(
      torch::nn::Linear(kColumns, 6),
      torch::nn::BatchNorm1d(6),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(6, kClasses));
  net->to(torch::kDouble);
  accelerator.prepare(net);
  net->eval();
  const torch::NoGradGuard no_grad;
  const auto evaluate = [&](auto& loader) {
    int64_t correct = 0;
    double sum = 0;
    std::vector<Tensor> predictions;
    for (auto& batch : loader) {
      const auto scores = net->forward(batch.data);
      const auto predicted = scores.argmax(1);
      correct += predicted.eq(batch.target).sum().template item<int64_t>();
      sum += F::cross_entropy(scores, batch.target).template item<double>() *
          static_cast<double>(batch.data.size(0));
      const auto rows = accelerator.gather_for_metrics(predicted);
      EXPECT_LT(rows.template data_ptr<int64_t>()[0], kClasses);
      predictions.push_back(rows);
    }
    return std::make_tuple(correct, sum, torch::cat(predictions));
  };
  const auto data =
      Samples(17, false).map(torch::data::transforms::Stack<>());
  auto plain = torch::data::make_data_loader<SequentialSampler>(data, 5);
  auto ours = accel::data::make_data_loader<SequentialSampler>(data, 5);
  const auto expected = evaluate(*plain);
  const auto actual = evaluate(*ours);
  EXPECT_EQ(std::get<0>(actual), std::get<0>(expected));
  EXPECT_NEAR(std::get<1>(actual), std::get<1>(expected), 1e-9);
  EXPECT_TRUE(torch::equal(std::get<2>(actual), std::get<2>(expected)));
}

TEST(MatchSingleDevice, Evaluation) {
  run_all("match_evaluation");
}

} // namespace accel::test::match
