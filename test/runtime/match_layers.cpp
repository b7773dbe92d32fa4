// Layers of which the batch is part: norms, random numbers, low precision.

#include "expectations.h"
#include "match_training.h"
#include "multiprocess.h"

#include <accel/accelerator.h>

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace accel::test::match {

ACCEL_RANK_FUNCTION(match_norms) {
  using namespace torch::nn;
  follows_one_device(
      "batch norm",
      layers(
          cross_entropy,
          linear(kColumns, 6),
          [] { return BatchNorm1d(6); },
          tanh_layer(),
          linear(6, kClasses)));
  const auto images = [](torch::nn::Sequential& net,
                         const Tensor& x,
                         const Tensor& y) {
    return F::cross_entropy(net->forward(as_images(x)), y);
  };
  const auto convolution = [] {
    return Conv2d(Conv2dOptions(3, 4, 3).padding(1));
  };
  const auto flatten = [] { return Flatten(); };
  const std::vector<BatchNormOptions> all = {
      BatchNormOptions(4),
      BatchNormOptions(4).momentum(std::nullopt).eps(1e-2),
      BatchNormOptions(4).affine(false),
      BatchNormOptions(4).track_running_stats(false)};
  for (const auto& options : all) {
    follows_one_device(
        "batch norm of images",
        layers(
            images,
            convolution,
            [=] { return BatchNorm2d(options); },
            tanh_layer(),
            flatten,
            linear(16, kClasses)));
  }
  follows_one_device(
      "norms of samples",
      layers(
          images,
          convolution,
          [] { return InstanceNorm2d(InstanceNorm2dOptions(4).affine(true)); },
          [] { return GroupNorm(GroupNormOptions(2, 4)); },
          tanh_layer(),
          flatten,
          [] { return LayerNorm(LayerNormOptions({16})); },
          linear(16, kClasses)));
  // A gradient of the gradient through the batch's statistics.
  follows_one_device(
      "gradient penalty",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto input = x.detach().clone().requires_grad_();
            const auto output = net->forward(input);
            const auto gradient = torch::autograd::grad(
                {output.sum()}, {input}, {}, true, /*create_graph=*/true)[0];
            return F::cross_entropy(output, y) +
                (gradient.norm(2, 1) - 1).pow(2).mean();
          },
          linear(kColumns, 6),
          [] { return BatchNorm1d(6); },
          tanh_layer(),
          linear(6, kClasses)));
}

TEST(MatchSingleDevice, Norms) {
  run_all("match_norms");
}

ACCEL_RANK_FUNCTION(match_random_numbers) {
  using namespace torch::nn;
  follows_one_device(
      "dropout",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto images = as_images(
                torch::alpha_dropout(torch::rrelu(x, 0.1, 0.4, true), 0.2, true));
            return F::cross_entropy(net->forward(images), y);
          },
          [] { return Dropout2d(0.4); },
          [] { return Flatten(); },
          linear(kColumns, 6),
          [] { return Dropout(0.5); },
          linear(6, kClasses)));
  follows_one_device(
      "numbers for samples and for all",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto n = x.size(0);
            const auto double_type = torch::dtype(torch::kDouble);
            // For each sample: noise, a time, a coin; another sample.
            auto input = x + 0.1 * torch::randn_like(x) +
                0.1 * torch::randn({n, kColumns}, double_type) +
                0.01 * torch::randint(1000, {n, 1}, double_type);
            input = input * torch::bernoulli(torch::full_like(x, 0.7));
            const auto order = torch::randperm(n);
            input = 0.8 * input + 0.2 * input.index_select(0, order);
            // For all of them.
            input = input * torch::rand({1}, double_type) +
                torch::randn({kColumns}, double_type);
            const auto scores = net->forward(input);
            const auto drawn =
                torch::multinomial(scores.detach().softmax(1), 1).squeeze(1);
            return F::cross_entropy(scores, y) +
                0.1 * F::cross_entropy(scores, drawn);
          },
          linear(kColumns, kClasses)));
}

TEST(MatchSingleDevice, RandomNumbers) {
  run_all("match_random_numbers");
}

// What is computed in low precision is rounded where one device rounds, but for
// sums over the batch.
ACCEL_RANK_FUNCTION(match_low_precision) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::manual_seed(3);
  const auto whole =
      (torch::randn({7, 4, 6, 6}) * 3 + 7).to(torch::kBFloat16);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto norm = [&](const Tensor& x) {
      const auto channels = torch::full({4}, 1.5, dtype);
      return torch::batch_norm(
          x, channels, channels, {}, {}, true, 0, 1e-5, false);
    };
    const auto run = [&](const Tensor& x) {
      const auto input = x.detach().clone().requires_grad_();
      const auto output = norm(input);
      output.to(torch::kFloat).sin().mean().backward();
      return std::make_pair(
          accelerator.full(output.detach()).to(torch::kFloat),
          accelerator.full(input.grad()).to(torch::kFloat));
    };
    const auto expected = run(whole);
    const auto actual = run(accelerator.distribute(whole));
    EXPECT_TRUE(torch::allclose(actual.first, expected.first, 2e-2, 2e-2));
    const auto largest = expected.second.abs().max();
    ASSERT_GT(largest.item<double>(), 0);
    EXPECT_TRUE(torch::allclose(
        actual.second / largest, expected.second / largest, 0, 3e-2));
  }
}

TEST(MatchSingleDevice, LowPrecision) {
  run_all("match_low_precision");
}

} // namespace accel::test::match
