// The gradient scaler where gradients are of several kinds, as with a model on
// several devices.

#include <accel/grad_scaler.h>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <limits>

namespace {

struct TwoKinds {
  TwoKinds() {
    single.mutable_grad() = torch::full({3}, 8.0);
    twice.mutable_grad() = torch::full({2}, 16.0, torch::kDouble);
  }

  torch::Tensor single = torch::ones({3}).requires_grad_();
  torch::Tensor twice = torch::ones({2}, torch::kDouble).requires_grad_();
  torch::optim::SGD optimizer{{single, twice}, torch::optim::SGDOptions(1)};
};

accel::GradScaler scaler_of_four() {
  return accel::GradScaler(accel::GradScalerOptions().init_scale(4));
}

} // namespace

TEST(GradScalerKinds, AllAreUnscaled) {
  TwoKinds model;
  auto scaler = scaler_of_four();
  scaler.unscale_(model.optimizer);
  EXPECT_TRUE(torch::equal(model.single.grad(), torch::full({3}, 2.0)));
  EXPECT_TRUE(
      torch::equal(model.twice.grad(), torch::full({2}, 4.0, torch::kDouble)));
  EXPECT_TRUE(scaler.step(model.optimizer, [] {}));
}

TEST(GradScalerKinds, AnInfinityInAnyOfThemSkipsTheStep) {
  for (const bool in_first : {true, false}) {
    TwoKinds model;
    auto scaler = scaler_of_four();
    (in_first ? model.single : model.twice).mutable_grad()[1] =
        std::numeric_limits<double>::infinity();
    EXPECT_FALSE(scaler.step(model.optimizer, [] { FAIL() << "stepped"; }));
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 2.0);
  }
}

TEST(GradScalerKinds, SparseOnesAreUnscaled) {
  TwoKinds model;
  auto table = torch::ones({4, 2}).requires_grad_();
  table.mutable_grad() = torch::sparse_coo_tensor(
      torch::tensor({{1, 3, 1}}), torch::full({3, 2}, 8.0), {4, 2});
  model.optimizer.param_groups()[0].params().push_back(table);
  auto scaler = scaler_of_four();
  scaler.unscale_(model.optimizer);
  EXPECT_TRUE(torch::equal(
      table.grad().to_dense(),
      torch::tensor({{0., 0.}, {4., 4.}, {0., 0.}, {2., 2.}})));
  table.grad()._values()[2] = std::numeric_limits<float>::infinity();
  scaler.step(model.optimizer, [] {});
  scaler.update();
  scaler.unscale_(model.optimizer);
  EXPECT_FALSE(scaler.step(model.optimizer, [] { FAIL() << "stepped"; }));
}
