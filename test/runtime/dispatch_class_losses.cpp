// Means of losses over classes, where padding and class weights make the
// denominators of the processes' parts unequal.

#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/gradient_state.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::BatchShare;
using accel::GradientState;
using torch::Tensor;
namespace F = torch::nn::functional;

namespace {

constexpr int64_t kClasses = 5;

struct Loss {
  std::string name;
  /// What one sample's targets have for a shape.
  std::vector<int64_t> shape;
  int64_t ignored;
  std::function<Tensor(const Tensor& scores, const Tensor& targets)> compute;
};

Tensor class_weights() {
  return torch::tensor({0.5, 2., 0.1, 1., 3.}, torch::kDouble);
}

std::vector<Loss> losses() {
  const auto tokens = [](const Tensor& scores, const Tensor& targets) {
    return F::cross_entropy(
        scores.permute({0, 2, 1}).reshape({-1, kClasses}),
        targets.reshape({-1}),
        F::CrossEntropyFuncOptions().ignore_index(0));
  };
  return {
      {"plain",
       {},
       -1,
       [](auto& x, auto& y) { return torch::nll_loss(x.log_softmax(1), y); }},
      {"class weights",
       {},
       -1,
       [](auto& x, auto& y) {
         return torch::nll_loss(x.log_softmax(1), y, class_weights());
       }},
      {"ignored by default",
       {},
       -100,
       [](auto& x, auto& y) { return F::cross_entropy(x, y); }},
      {"tokens", {7}, 0, tokens},
      {"CrossEntropyLoss, all options",
       {3},
       2,
       [](auto& x, auto& y) {
         return torch::nn::CrossEntropyLoss(
             torch::nn::CrossEntropyLossOptions()
                 .weight(class_weights())
                 .ignore_index(2)
                 .label_smoothing(0.1))(x, y);
       }},
      {"images",
       {3, 2},
       3,
       [](auto& x, auto& y) {
         return torch::nn::NLLLoss(torch::nn::NLLLossOptions()
                                       .weight(class_weights())
                                       .ignore_index(3))(x.log_softmax(1), y);
       }},
      {"a sum", {}, 1, [](auto& x, auto& y) {
         return F::cross_entropy(
             x,
             y,
             F::CrossEntropyFuncOptions().ignore_index(1).reduction(
                 torch::kSum));
       }}};
}

struct Batch {
  Batch(const Loss& loss, int64_t rows) {
    std::vector<int64_t> sizes = {rows};
    sizes.insert(sizes.end(), loss.shape.begin(), loss.shape.end());
    targets = torch::randint(kClasses, sizes, torch::kLong);
    if (loss.ignored != -1) {
      // More and more to the end, the last rows wholly.
      const auto padded = torch::rand(sizes).mul(rows).lt(
          torch::arange(rows).view([&] {
            std::vector<int64_t> shape(sizes.size(), 1);
            shape[0] = rows;
            return shape;
          }()));
      targets.masked_fill_(padded, loss.ignored);
      targets[0].zero_().add_(4);
      targets.slice(0, rows - rows / 4).fill_(loss.ignored);
    }
    sizes.insert(sizes.begin() + 1, kClasses);
    scores = torch::randn(sizes, torch::kDouble);
  }
  Tensor scores, targets;
};

double sum_over_processes(Accelerator& accelerator, const Tensor& number) {
  return accelerator.reduce(number.detach().clone()).item<double>();
}

void expect_mean_of_one_device(
    Accelerator& accelerator, const Loss& loss, int64_t global) {
  SCOPED_TRACE(c10::str(loss.name, ", ", global, " rows"));
  const auto share = BatchShare::of(
      global, accelerator.process_index(), accelerator.num_processes());
  const Batch batch(loss, global);
  auto& state = GradientState::get();
  state.clear_share();
  auto whole = batch.scores.clone().requires_grad_();
  const auto expected = loss.compute(whole, batch.targets);
  expected.backward();

  state.set_share(share);
  const int64_t begin = share.ghost() ? 0 : share.offset;
  const auto rows = [&](const Tensor& tensor) {
    return tensor.slice(0, begin, begin + share.rows());
  };
  auto scores = rows(batch.scores).clone().requires_grad_();
  const auto part = loss.compute(scores, rows(batch.targets));
  EXPECT_TRUE(part.isfinite().item<bool>());
  const bool is_sum = loss.name == "a sum";
  const double weight =
      is_sum ? static_cast<double>(!share.ghost()) : share.weight();
  const double size = expected.abs().item<double>();
  EXPECT_NEAR(
      sum_over_processes(accelerator, part * weight),
      expected.item<double>(),
      1e-14 * size);
  (part * weight).backward();
  if (!share.ghost()) {
    EXPECT_TRUE(torch::allclose(
        scores.grad(), rows(whole.grad()), /*rtol=*/1e-12, /*atol=*/1e-16));
  }
  // What was gathered is everybody's.
  EXPECT_NEAR(
      loss.compute(batch.scores, batch.targets).item<double>(),
      expected.item<double>(),
      1e-14 * size);
  state.clear_share();
}

} // namespace

ACCEL_RANK_FUNCTION(class_losses) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::manual_seed(3);
  const int64_t world = accelerator.num_processes();
  // Equal parts, unequal ones, and ghosts.
  for (const int64_t global : {8 * world, 8 * world + 1, int64_t(4)}) {
    for (const auto& loss : losses()) {
      expect_mean_of_one_device(accelerator, loss, global);
    }
  }
}

TEST(ClassLosses, AreTheMeansOfOneDevice) {
  for (const int world : {1, 2, 3}) {
    accel::test::run_and_expect_success("class_losses", world);
  }
}

ACCEL_RANK_FUNCTION(class_losses_without_targets) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto share = BatchShare::of(4, accelerator.process_index(), 2);
  GradientState::get().set_share(share);
  const auto nothing = torch::full({2}, -100, torch::kLong);
  const auto something = torch::tensor({1, -100}, torch::kLong);
  const auto scores = torch::zeros({2, 4}, torch::kDouble);
  // One device: log(4) for the one target that counts.
  const auto loss = F::cross_entropy(
      scores, accelerator.is_main_process() ? something : nothing);
  EXPECT_NEAR(
      loss.item<double>(),
      accelerator.is_main_process() ? 2 * std::log(4.) : 0.,
      1e-15);
  // None counts at all: 0 / 0, as on one device.
  EXPECT_TRUE(F::cross_entropy(scores, nothing).isnan().item<bool>());
}

TEST(ClassLosses, AProcessMayHaveNothingThatCounts) {
  accel::test::run_and_expect_success("class_losses_without_targets", 2);
}

ACCEL_RANK_FUNCTION(class_losses_weighted_twice) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto share = BatchShare::of(6, accelerator.process_index(), 2);
  const auto targets = torch::tensor({1, 0, 0}, torch::kLong);
  const auto loss = [&](int64_t ignored) {
    const auto scores =
        torch::zeros({3, 4}, torch::kDouble).requires_grad_();
    return F::cross_entropy(
        scores, targets, F::CrossEntropyFuncOptions().ignore_index(ignored));
  };
  GradientState::get().set_share(share);
  const auto padded = loss(0);
  try {
    accelerator.backward(padded, 1.0);
    ADD_FAILURE() << "took a loss that is weighted already";
  } catch (const c10::Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("weighted once more"),
        std::string::npos);
  }
  // Own weights are for means of other things, and for a later loss.
  accelerator.backward(loss(-100), 3.0);
  accelerator.backward(loss(0));
  accelerator.backward(loss(-100), 3.0);
}

TEST(ClassLosses, AreNotWeightedTwice) {
  accel::test::run_and_expect_success("class_losses_weighted_twice", 2);
}
