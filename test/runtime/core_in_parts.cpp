// Rules that samples of calls do not show to be taken: what they leave is in
// parts, and as the plain operator leaves it.

#include "in_parts.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::distributed::placements;
using accel::test::expect_equal;
using accel::test::is_cut;
using accel::test::run_and_expect_success;
using torch::Tensor;

namespace {

/// What a program adds up in place, beginning with a plain tensor of zeros, becomes a
/// part like what is added; a tensor that has a second name stays what it is. And
/// frames of a signal, through a view.
ACCEL_RANK_FUNCTION(sums_in_place_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor rows = torch::randn({6, 4}, torch::kDouble);
  const Tensor weight = torch::randn({4, 2}, torch::kDouble).requires_grad_();
  const auto sums = [&](const Tensor& x) {
    Tensor loss = torch::zeros({}, torch::kDouble);
    Tensor of_rows = torch::zeros({x.size(0)}, torch::kDouble);
    Tensor named = torch::zeros({x.size(0)}, torch::kDouble);
    const Tensor name = named;
    for (int i = 0; i < 2; ++i) {
      const Tensor y = x.mm(weight).tanh();
      loss += y.square().mean();
      of_rows += y.sum(1);
      named += y.sum(1);
    }
    EXPECT_TRUE(torch::equal(accelerator.full(name), accelerator.full(named)));
    const Tensor frames = x.view({6, 2, 2}).view({6, 4}).as_strided({6, 3, 2}, {4, 1, 1});
    return std::vector<Tensor>{loss, of_rows, name, frames};
  };
  const auto gradient = [&](const std::vector<Tensor>& all) {
    weight.mutable_grad() = Tensor();
    (all[0] + all[1].square().sum() + all[2].sum()).backward();
    return weight.grad();
  };
  const auto plain = sums(rows);
  const auto got = sums(accelerator.distribute(rows));
  ASSERT_TRUE(accel::distributed::is_distributed(got[0]));
  EXPECT_TRUE(placements(got[0]).at(0).is_partial());
  EXPECT_TRUE(is_cut(got[1], 0));
  EXPECT_TRUE(is_cut(got[3], 0));
  for (size_t i = 0; i < plain.size(); ++i) {
    expect_equal(accelerator, plain[i], got[i]);
  }
  expect_equal(accelerator, gradient(plain), gradient(got));
}

} // namespace

/// A matrix between the rows of a batch, as a graph's: each process makes its own rows
/// of the product, forward and backward.
ACCEL_RANK_FUNCTION(products_between_rows) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor graph = torch::rand({6, 6}, torch::kDouble);
  const Tensor rows = torch::randn({6, 4}, torch::kDouble);
  const Tensor x = accelerator.distribute(rows).requires_grad_();
  const Tensor plain = rows.clone().requires_grad_();
  const Tensor got = graph.mm(x), wanted = graph.mm(plain);
  got.square().sum().backward();
  wanted.square().sum().backward();
  EXPECT_TRUE(is_cut(got, 0) && is_cut(x.grad(), 0));
  expect_equal(accelerator, wanted, got);
  expect_equal(accelerator, plain.grad(), x.grad());
  // The same of a sparse matrix, of which few are 0.
  for (const bool added : {false, true}) {
    const Tensor sparse = (graph * graph.gt(0.3)).to_sparse();
    const Tensor part = accelerator.distribute(rows).requires_grad_();
    const Tensor all = rows.clone().requires_grad_();
    const auto product = [&](const Tensor& of) {
      return added ? torch::addmm(torch::ones({4}, torch::kDouble), sparse, of)
                   : torch::mm(sparse, of);
    };
    const Tensor in_parts = product(part), whole = product(all);
    in_parts.square().sum().backward();
    whole.square().sum().backward();
    EXPECT_TRUE(is_cut(in_parts, 0) && is_cut(part.grad(), 0)) << added;
    expect_equal(accelerator, whole, in_parts);
    expect_equal(accelerator, all.grad(), part.grad());
    EXPECT_TRUE(is_cut(sparse.mm(accelerator.distribute(rows, 1)), 1));
  }
  const Tensor columns = accelerator.distribute(rows.t(), 1).mm(graph);
  EXPECT_TRUE(is_cut(columns, 1));
  expect_equal(accelerator, rows.t().mm(graph), columns);
}

ACCEL_RANK_FUNCTION(sequences_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor scores = torch::randn({6, 7, 5}, torch::kDouble).log_softmax(2);
  const Tensor targets = torch::randint(1, 5, {7, 3});
  // The longest target is on the first process.
  const std::vector<int64_t> inputs{6, 6, 5, 6, 4, 6, 6};
  const std::vector<int64_t> lengths{3, 1, 2, 1, 2, 1, 1};
  std::vector<Tensor> gradients;
  for (const bool row : {false, true}) {
    Tensor all = targets;
    if (row) {
      std::vector<Tensor> each;
      for (int64_t i = 0; i < 7; ++i) {
        each.push_back(targets[i].slice(0, 0, lengths[i]));
      }
      all = torch::cat(each);
    }
    const Tensor plain = scores.clone().requires_grad_();
    const Tensor of_plain = torch::ctc_loss(plain, all, inputs, lengths, 0, 0);
    (of_plain * of_plain).sum().backward();
    const Tensor x = accelerator.distribute(scores, 1).requires_grad_();
    const Tensor losses = torch::ctc_loss(
        x, row ? all : accelerator.distribute(all), inputs, lengths, 0, 0);
    (losses * losses).sum().backward();
    EXPECT_TRUE(is_cut(losses, 0) && is_cut(x.grad(), 1));
    expect_equal(accelerator, of_plain, losses);
    expect_equal(accelerator, plain.grad(), x.grad());
  }
}

ACCEL_RANK_FUNCTION(bags_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor table = torch::randn({9, 4}, torch::kDouble);
  const Tensor indices = torch::randint(9, {7, 3});
  const Tensor counts = torch::rand({7, 3}, torch::kDouble);
  const Tensor offsets = torch::arange(0, 21, 3);
  for (const int64_t mode : {0, 1, 2}) {
    const auto bags = [&](const Tensor& weight, const Tensor& rows, const Tensor& by) {
      return std::get<0>(torch::embedding_bag(
          weight, rows.reshape(-1), offsets, false, mode, false,
          mode == 0 ? by.reshape(-1) : Tensor()));
    };
    const Tensor plain = table.clone().requires_grad_();
    const Tensor by = counts.clone().requires_grad_();
    const Tensor of_plain = bags(plain, indices, by);
    (of_plain * of_plain).sum().backward();
    const Tensor weight = table.clone().requires_grad_();
    const Tensor cut_by = accelerator.distribute(counts).requires_grad_();
    const Tensor used = weight * 1;
    bool partial = false;
    used.register_hook([&](const Tensor& gradient) {
      partial = accel::distributed::is_distributed(gradient) &&
          placements(gradient).at(0).is_partial();
    });
    const Tensor got = bags(used, accelerator.distribute(indices), cut_by);
    (got * got).sum().backward();
    EXPECT_TRUE(is_cut(got, 0)) << "mode " << mode;
    EXPECT_TRUE(partial) << "mode " << mode;
    expect_equal(accelerator, of_plain, got);
    expect_equal(accelerator, plain.grad(), weight.grad());
    if (mode == 0) {
      EXPECT_TRUE(is_cut(cut_by.grad(), 0));
      expect_equal(accelerator, by.grad(), cut_by.grad());
    }
  }
}

ACCEL_RANK_FUNCTION(pairs_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor rows = torch::randn({7, 3}, torch::kDouble);
  const Tensor plain = rows.clone().requires_grad_();
  const Tensor of_plain = torch::pdist(plain, 2.5);
  of_plain.cos().sum().backward();
  const Tensor x = accelerator.distribute(rows).requires_grad_();
  const Tensor got = torch::pdist(x, 2.5);
  got.cos().sum().backward();
  EXPECT_TRUE(is_cut(got, 0));
  expect_equal(accelerator, of_plain, got);
  expect_equal(accelerator, plain.grad(), x.grad());
}

// One deviation for all rows, as the policy of an agent has it.
ACCEL_RANK_FUNCTION(draws_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor means = torch::randn({7, 3}, torch::kDouble);
  const Tensor deviations = torch::rand({3}, torch::kDouble);
  const Tensor chances = torch::rand({7, 1}, torch::kDouble);
  const auto draw = [&](const Tensor& mean, const Tensor& chance) {
    torch::manual_seed(5);
    return std::vector<Tensor>{
        at::normal(mean, deviations.expand_as(mean)),
        at::normal(deviations.expand_as(mean), mean.exp()),
        at::bernoulli(chance.expand({7, 4})), torch::rand({2})};
  };
  const auto plain = draw(means, chances);
  const auto got =
      draw(accelerator.distribute(means), accelerator.distribute(chances));
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(is_cut(got[i], 0), i < 3) << i;
    EXPECT_EQ(plain[i].strides(), got[i].strides()) << i;
    expect_equal(accelerator, plain[i], got[i]);
  }
}

// A loss is a part of a sum; weight penalties and the zero that sums begin with
// are added on one process, so that nothing is communicated.
ACCEL_RANK_FUNCTION(penalties_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor rows = torch::randn({7, 3});
  const Tensor weight = torch::randn({3, 1}).requires_grad_();
  const auto gradient = [&](const Tensor& loss) {
    weight.mutable_grad() = Tensor();
    loss.backward();
    return weight.grad();
  };
  const auto losses = [&](const Tensor& x) {
    const Tensor loss = x.mm(weight).square().mean();
    const Tensor penalty = weight.square().sum();
    return std::vector<Tensor>{
        loss + 0.25,
        loss + penalty,
        0.5 * penalty + loss,
        torch::zeros({}) + loss + loss,
        torch::zeros({1}) + loss,
        loss + penalty.to(torch::kDouble),
        loss + torch::tensor(3),
        loss.to(torch::kDouble) + c10::complex<double>(1, 2)};
  };
  const auto plain = losses(rows);
  const auto got = losses(accelerator.distribute(rows));
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_TRUE(accel::distributed::is_distributed(got[i])) << i;
    EXPECT_TRUE(placements(got[i]).at(0).is_partial()) << i;
    EXPECT_EQ(plain[i].dtype(), got[i].dtype()) << i;
    EXPECT_EQ(plain[i].sizes(), got[i].sizes()) << i;
    EXPECT_TRUE(torch::allclose(plain[i], accelerator.full(got[i]))) << i;
  }
  EXPECT_TRUE(torch::allclose(gradient(plain[1]), accelerator.full(gradient(got[1]))));
  // A difference that is zero on one device is zero.
  const Tensor loss = accelerator.distribute(rows).mm(weight).square().mean();
  EXPECT_EQ((loss - accelerator.full(loss)).item<float>(), 0);
}

/// In-place operators on views: gradients go back through the views, not to where
/// these lie in the memory of the whole tensor.
ACCEL_RANK_FUNCTION(writes_through_views_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor images = torch::randn({5, 4, 3, 3}, torch::kDouble);
  torch::nn::InstanceNorm2d norm(4);
  using Write = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<const char*, Write>> writes{
      {"a norm's result", [&](const Tensor& x) { return norm(x).relu_(); }},
      {"channels",
       [](const Tensor& x) {
         Tensor y = x * 2;
         y.narrow(1, 1, 2).mul_(x.narrow(1, 0, 2));
         return y;
       }},
      {"flattened",
       [](const Tensor& x) {
         Tensor y = x * 2;
         y.view({-1, 9}).select(1, 4).sigmoid_();
         return y;
       }},
      {"transposed",
       [](const Tensor& x) {
         Tensor y = x * 2;
         y.transpose(1, 3).tanh_();
         return y;
       }},
  };
  for (const auto& [what, write] : writes) {
    const auto gradient = [&, &write = write](const Tensor& batch) {
      // No leaf: a leaf's gradient would be made like the leaf.
      const Tensor leaf = batch.detach().requires_grad_();
      Tensor seen;
      const Tensor x = leaf * 1.0;
      x.register_hook([&](const Tensor& got) { seen = got; });
      (write(x).square() * images.sum().cos()).sum().backward();
      return seen;
    };
    const Tensor got = gradient(accelerator.distribute(images));
    ASSERT_TRUE(accel::distributed::is_distributed(got)) << what;
    EXPECT_TRUE(placements(got).at(0).is_shard(0)) << what;
    EXPECT_TRUE(torch::allclose(gradient(images), accelerator.full(got), 1e-12, 1e-14))
        << what;
  }
}

/// A scale that is also added to the loss: its gradient, parts of a sum, goes
/// through `exp` and meets one that all processes have.
ACCEL_RANK_FUNCTION(scales_in_parts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const Tensor rows = torch::randn({7, 2}, torch::kDouble);
  for (const double first : {0.5, 800.0}) {
    const auto gradient = [&](const Tensor& x, bool in_parts) {
      const Tensor logarithm =
          torch::tensor({first, -0.25}, torch::kDouble).requires_grad_();
      const Tensor copy = logarithm * 1.0;
      bool is_sum = false;
      copy.register_hook([&](const Tensor& got) {
        is_sum = accel::distributed::is_distributed(got) &&
            placements(got).at(0).is_sum();
      });
      const Tensor scale = copy.exp();
      ((x * scale).pow(2).mean() + 0.1 * copy.sum()).backward();
      // exp(800) is infinite: 0 in one process's part and a number in another's.
      EXPECT_EQ(is_sum, in_parts && std::isfinite(std::exp(first)));
      return logarithm.grad();
    };
    const Tensor plain = gradient(rows, false);
    const Tensor got = gradient(accelerator.distribute(rows), true);
    EXPECT_TRUE(torch::allclose(
        plain, accelerator.full(got), 1e-12, 1e-12, /*equal_nan=*/true))
        << plain << got;
  }
}

TEST(InParts, ScalesOfRows) {
  run_and_expect_success("scales_in_parts", 3);
}

TEST(InParts, SequencesOfAnyLength) {
  run_and_expect_success("sequences_in_parts", 2);
  run_and_expect_success("sequences_in_parts", 3);
}
TEST(InParts, BagsOfEmbeddings) {
  run_and_expect_success("bags_in_parts", 2);
  run_and_expect_success("bags_in_parts", 3);
}
TEST(InParts, PairsOfRows) {
  run_and_expect_success("pairs_in_parts", 2);
  run_and_expect_success("pairs_in_parts", 3);
}
TEST(InParts, DrawsFromExpandedTensors) {
  run_and_expect_success("draws_in_parts", 2);
  run_and_expect_success("draws_in_parts", 3);
}

TEST(InParts, WritesThroughViews) {
  run_and_expect_success("writes_through_views_in_parts", 2);
  run_and_expect_success("writes_through_views_in_parts", 3);
}

TEST(InParts, SumsInPlace) {
  run_and_expect_success("sums_in_place_in_parts", 2);
  run_and_expect_success("sums_in_place_in_parts", 3);
}

TEST(InParts, ProductsBetweenRows) {
  run_and_expect_success("products_between_rows", 2);
  run_and_expect_success("products_between_rows", 4);
}

TEST(InParts, PenaltiesOfALoss) {
  run_and_expect_success("penalties_in_parts", 2);
  run_and_expect_success("penalties_in_parts", 3);
}

/// The host goes through the elements of a sum: it is added up once, and is anew where it
/// is written. In a graph elements stay parts.
ACCEL_RANK_FUNCTION(elements_of_a_sum) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  const auto data = torch::sin(torch::arange(21, torch::kDouble)).view({7, 3});
  const auto rows = accelerator.distribute(data);
  auto sums = rows.sum(0);
  ASSERT_TRUE(is_sum(sums));
  EXPECT_FALSE(is_sum(sums[0]));
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(sums[i].item<double>(), data.sum(0)[i].item<double>(), 1e-12);
  }
  sums.mul_(2);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(sums[i].item<double>(), 2 * data.sum(0)[i].item<double>(), 1e-12);
  }
  sums[1].fill_(5);
  EXPECT_EQ(sums[1].item<double>(), 5);
  EXPECT_NEAR(sums.sum().item<double>(), 5 + 2 * (data.sum(0)[0] + data.sum(0)[2]).item<double>(), 1e-12);
  // Of a matrix, row by row.
  const auto products = rows.t().mm(rows);
  ASSERT_TRUE(is_sum(products));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(
          products[i][j].item<double>(), data.t().mm(data)[i][j].item<double>(), 1e-12);
    }
  }
  auto weight = torch::ones({3}, torch::kDouble).requires_grad_();
  const auto losses = (rows * weight).sum(0);
  EXPECT_TRUE(is_sum(losses[0]));
  (losses[0] * losses[2]).backward();
  auto plain = torch::ones({3}, torch::kDouble).requires_grad_();
  const auto theirs = (data * plain).sum(0);
  (theirs[0] * theirs[2]).backward();
  expect_equal(accelerator, plain.grad(), weight.grad());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(weight.grad()[i].item<double>(), plain.grad()[i].item<double>(), 1e-12);
  }
}

TEST(InParts, ElementsOfASum) {
  run_and_expect_success("elements_of_a_sum", 2);
  run_and_expect_success("elements_of_a_sum", 3);
}
