// distribute_like: a buffer is cut where a batch is cut, filled in parts, and gives
// the plain numbers and gradients; distribute: what is cut nowhere is cut.

#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::distribute_like;
using accel::distributed::CutPoints;
using accel::distributed::DeviceMesh;
using accel::distributed::distribute_tensor;
using accel::distributed::init_device_mesh;

using accel::distributed::placements;
using accel::distributed::Shard;
using accel::distributed::to_local;
using accel::test::run_and_expect_success;
using torch::Tensor;

ACCEL_RANK_FUNCTION(cut_where_a_batch_is) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const auto x = accelerator.distribute(torch::rand({7, 5, 4}));
  ASSERT_TRUE(accel::distributed::is_distributed(x));
  const auto like_x = distribute_like(torch::zeros({7, 3}), x);
  EXPECT_EQ(placements(like_x), placements(x));
  EXPECT_EQ(to_local(like_x).size(0), to_local(x).size(0));
  EXPECT_EQ(placements(distribute_like(torch::zeros({3, 7}), x, 1)).at(0), Shard(1));
  EXPECT_EQ(placements(distribute_like(torch::zeros({3, 7}), x, -1)).at(0), Shard(1));
  // Other rows, no such dimension, a plain batch.
  EXPECT_FALSE(accel::distributed::is_distributed(distribute_like(torch::zeros({6, 3}), x)));
  EXPECT_FALSE(accel::distributed::is_distributed(distribute_like(torch::zeros({7, 3}), x, 1)));
  const auto inner = accelerator.distribute(torch::rand({5, 7}), 1);
  EXPECT_FALSE(accel::distributed::is_distributed(distribute_like(torch::zeros({5}), inner)));
  EXPECT_FALSE(accel::distributed::is_distributed(distribute_like(torch::zeros({7, 3}), torch::rand({7}))));
  // What is distributed already stays where it is.
  EXPECT_EQ(placements(distribute_like(inner, x)).at(0), Shard(1));
  EXPECT_THROW(distribute_like(torch::zeros({7, 3}), x, 2), c10::Error);
  EXPECT_THROW(distribute_like(torch::zeros({7, 3}), torch::rand({7}), -3), c10::Error);
  // A sum in parts is cut nowhere; a cut of its own is taken over.
  const DeviceMesh mesh;
  const auto two = mesh.size() == 2;
  const auto cut = c10::make_intrusive<CutPoints>(
      two ? std::vector<int64_t>{0, 1, 4} : std::vector<int64_t>{0, 1, 2, 4}, 2);
  const auto blocks = distribute_tensor(torch::rand({8}), mesh, {Shard(0, cut)});
  const auto as_blocks = distribute_like(torch::arange(16).view({2, 8}), blocks, 1);
  EXPECT_EQ(placements(as_blocks).at(0), Shard(1, cut));
  EXPECT_TRUE(as_blocks.equal(torch::arange(16).view({2, 8})));
  EXPECT_FALSE(accel::distributed::is_distributed(
      distribute_like(torch::zeros({7}), x.sum(0).sum(0).sum().expand({7}))));
}

/// What is a part of a sum, or the same on every process; and single rows that were
/// put together are cut already.
ACCEL_RANK_FUNCTION(cut_again) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const auto data = torch::arange(28, torch::kDouble).view({7, 4});
  for (const bool same : {false, true}) {
    auto together = accelerator.distribute(data, 1)
                        .mm(torch::eye(4, 8, torch::kDouble)).slice(1, 0, 4);
    together = same ? together.clone().relu_() : together;
    ASSERT_FALSE(placements(together).at(0).is_shard());
    const auto again = accelerator.distribute(together);
    EXPECT_EQ(placements(again).at(0), Shard(0)) << placements(together).at(0).str();
    EXPECT_TRUE(again.equal(data));
  }
  const auto rows = accelerator.distribute(data).chunk(7, 0);
  EXPECT_EQ(placements(torch::cat(rows)).at(0), Shard(0));
  EXPECT_TRUE(torch::cat(rows).equal(data));
  std::vector<torch::Tensor> taken;
  for (int64_t i = 6; i >= 0; --i) {
    taken.push_back(accelerator.distribute(data)[i]);
  }
  EXPECT_EQ(placements(torch::stack(taken)).at(0), Shard(0));
  EXPECT_TRUE(torch::stack(taken).equal(data.flip(0)));
  // What is cut elsewhere stays so.
  const auto inner = accelerator.distribute(data, 1);
  EXPECT_EQ(placements(accelerator.distribute(inner)).at(0), Shard(1));
}

ACCEL_RANK_FUNCTION(filled_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(2);
  const auto options = torch::dtype(torch::kDouble);
  const auto data = torch::rand({7, 5, 4}, options);
  const auto weight = torch::rand({4, 3}, options).requires_grad_();
  std::vector<Tensor> results;
  for (const bool in_parts : {false, true}) {
    const auto x = in_parts ? accelerator.distribute(data) : data;
    auto rows = distribute_like(torch::zeros({7, 5, 3}, options), x);
    auto steps = distribute_like(torch::empty({5, 7, 3}, options), x, 1);
    for (int64_t t = 0; t < 5; ++t) {
      const auto y = x.select(1, t).mm(weight);
      rows.select(1, t).copy_(y);
      steps[t] = y * (t + 1);
    }
    EXPECT_EQ(accel::distributed::is_distributed(rows), in_parts);
    EXPECT_EQ(accel::distributed::is_distributed(steps), in_parts);
    const auto loss = (rows.pow(2) + steps.transpose(0, 1)).sum();
    const auto gradient = torch::autograd::grad({loss}, {weight}).at(0);
    results.push_back(accel::distributed::full_tensor(loss.detach()));
    results.push_back(accel::distributed::full_tensor(gradient));
    results.push_back(accel::distributed::full_tensor(rows.detach()));
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(results.at(i).allclose(results.at(i + 3), 1e-12, 1e-12)) << i;
  }
}

ACCEL_RANK_FUNCTION(on_two_axes) {
  Accelerator accelerator(AcceleratorOptions().cpu(true));
  const auto mesh = init_device_mesh({2, 2}, {"dp", "sp"});
  const auto both = distribute_tensor(torch::rand({8, 6}), mesh, {Shard(0), Shard(1)});
  EXPECT_EQ(placements(distribute_like(torch::zeros({8, 6, 2}), both)), placements(both));
  const auto rows = distribute_like(torch::zeros({8, 5}), both);
  EXPECT_EQ(placements(rows).size(), 1);
  EXPECT_EQ(to_local(rows).size(0), 4);
  const auto twice = distribute_tensor(torch::rand({8}), mesh, {Shard(0), Shard(0)});
  const auto like_twice = distribute_like(torch::arange(24).view({3, 8}), twice, 1);
  EXPECT_EQ(placements(like_twice), (std::vector{Shard(1), Shard(1)}));
  EXPECT_TRUE(like_twice.equal(torch::arange(24).view({3, 8})));
}

TEST(DistributeLike, CutsWhereABatchIsCut) {
  run_and_expect_success("cut_where_a_batch_is", 2);
  run_and_expect_success("cut_where_a_batch_is", 3);
}

TEST(Distribute, CutsWhatIsCutNowhere) {
  run_and_expect_success("cut_again", 2);
  run_and_expect_success("cut_again", 3);
}

TEST(DistributeLike, IsFilledInParts) {
  run_and_expect_success("filled_in_parts", 2);
  run_and_expect_success("filled_in_parts", 3);
}

TEST(DistributeLike, TakesEachAxis) {
  run_and_expect_success("on_two_axes", 4);
}

/// Forward mode: what a tensor is a tangent of goes where the tensor goes.
ACCEL_RANK_FUNCTION(tangents_go_along) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const auto values = torch::sin(torch::arange(28, torch::kDouble)).view({7, 4});
  const auto tangent = torch::cos(torch::arange(28, torch::kDouble)).view({7, 4});
  auto weight = torch::arange(1, 5, torch::kDouble).requires_grad_();
  const auto level = static_cast<int64_t>(torch::autograd::forward_ad::enter_dual_level());
  const auto tangent_of = [&](const Tensor& tensor) {
    return std::get<1>(torch::_unpack_dual(tensor, level));
  };
  for (const bool graph : {false, true}) {
    const auto plain = torch::_make_dual(values, tangent, level);
    const auto dual = graph ? plain * weight : plain;
    const auto wanted = graph ? tangent * weight : tangent;
    const auto cut = accelerator.distribute(dual);
    ASSERT_TRUE(accel::distributed::is_distributed(cut));
    ASSERT_TRUE(tangent_of(cut).defined());
    EXPECT_EQ(placements(tangent_of(cut)), placements(cut));
    EXPECT_TRUE(tangent_of(cut).equal(wanted));
    EXPECT_TRUE(tangent_of(accelerator.full(cut)).equal(wanted));
    EXPECT_TRUE(tangent_of(accelerator.distribute(cut, 1)).equal(wanted));
    EXPECT_TRUE(tangent_of(distribute_like(dual, cut)).equal(wanted));
    const auto mine = to_local(cut);
    EXPECT_TRUE(tangent_of(mine).equal(to_local(accelerator.distribute(wanted))));
    const auto again = accel::distributed::from_local(mine, DeviceMesh(), Shard(0));
    EXPECT_TRUE(tangent_of(again).equal(wanted));
    EXPECT_TRUE(tangent_of(cut.tanh()).allclose(wanted * (1 - dual.tanh().square())));
    if (graph) {
      tangent_of(cut.square()).sum().backward();
      const auto gradient = accelerator.full(weight.grad()).clone();
      weight.mutable_grad() = Tensor();
      (2 * values * tangent * weight.square()).sum().backward();
      EXPECT_TRUE(gradient.allclose(weight.grad()));
    }
  }
  torch::autograd::forward_ad::exit_dual_level(level);
}

TEST(DistributeLike, TangentsGoAlong) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("tangents_go_along", processes);
  }
}
