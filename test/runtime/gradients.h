#pragma once

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>

/// What the gradient tests compare: gradients of N processes against those that
/// one process computes from the complete batch with LibTorch alone, in float64.
/// Every rank function computes both.
namespace accel::test {

inline const auto kMatch = AcceleratorOptions().match_single_device(true);

inline torch::nn::Sequential make_net() {
  torch::manual_seed(4);
  torch::nn::Sequential net(
      torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  net->to(torch::kDouble);
  return net;
}

inline torch::Tensor rows(int64_t count, int64_t columns = 3, double seed = 1) {
  return torch::sin(torch::arange(count * columns, torch::kDouble) * seed)
      .view({count, columns});
}

/// Mean over the rows.
inline torch::Tensor mean_loss(torch::nn::Sequential& net, const torch::Tensor& x) {
  return net->forward(x).pow(2).sum(1).mean();
}

inline void expect_same(
    const torch::Tensor& actual,
    const torch::Tensor& expected,
    const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (actual.defined()) {
    EXPECT_EQ(actual.sizes(), expected.sizes()) << what;
    EXPECT_TRUE(torch::allclose(actual, expected, 1e-12, 1e-14))
        << what << "\nis " << actual << "\nnot " << expected;
  }
}

inline torch::Tensor dense(const torch::Tensor& gradient) {
  return gradient.defined() && gradient.is_sparse() ? gradient.to_dense()
                                                    : gradient;
}

inline void expect_same_gradients(
    const torch::nn::Module& actual,
    const torch::nn::Module& expected,
    const std::string& what) {
  const auto b = expected.named_parameters();
  for (const auto& item : actual.named_parameters()) {
    expect_same(
        dense(item.value().grad()),
        dense(b[item.key()].grad()),
        what + ": " + item.key());
  }
}

inline void expect_same_parameters(
    const torch::nn::Module& actual,
    const torch::nn::Module& expected,
    const std::string& what) {
  const auto b = expected.named_parameters();
  for (const auto& item : actual.named_parameters()) {
    expect_same(item.value(), b[item.key()], what + ": " + item.key());
  }
}

using SGD = accel::AcceleratedOptimizer<torch::optim::SGD>;
inline const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);

/// One of the micro-batches of an epoch.
struct MicroBatch {
  int64_t number;
  /// It ends its window.
  bool last;
  /// How many its window has.
  double length;
};

/// Calls `step` for each of `count` micro-batches in windows of `window`, as
/// they are when a loader hands them out.
template <typename Step>
void in_windows(int64_t count, int64_t window, const Step& step) {
  auto loader = std::make_shared<DataLoaderState>();
  GradientState::get().enter(loader);
  for (int64_t i = 0; i < count; ++i) {
    loader->end_of_dataloader = i == count - 1;
    GradientState::get().hand_out(loader);
    step(MicroBatch{
        i,
        i % window == window - 1 || loader->end_of_dataloader,
        static_cast<double>(std::min(window, count - i / window * window))});
  }
  GradientState::get().leave(loader);
}

/// A batch of one sample, which cannot be shared out, several times without
/// clearing: it counts once each time, on any number of processes.
template <typename Net>
void expect_one_sample_counts_once(
    Net net, Net reference, const torch::Tensor& batch) {
  Accelerator accelerator(kMatch);
  accelerator.prepare(net);
  for (int repetition = 0; repetition < 3; ++repetition) {
    auto step = accelerator.accumulate(net);
    const auto loss = mean_loss(net, accelerator.distribute(batch));
    accelerator.backward(loss);
    const auto expected = mean_loss(reference, batch);
    expected.backward();
    expect_same_gradients(*net, *reference, "one sample");
    EXPECT_NEAR(
        loss.template item<double>(), expected.template item<double>(), 1e-14);
  }
}

} // namespace accel::test
