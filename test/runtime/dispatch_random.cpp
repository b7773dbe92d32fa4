// Random numbers for the rows of a process against those that one device draws
// for the complete batch.

#include "data_sets.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/batch_share.h>
#include <accel/detail/communicator.h>
#include <accel/gradient_state.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::BatchShare;
using accel::GradientState;
using accel::test::generator_state;
using torch::Tensor;

namespace {

AcceleratorOptions match() {
  return AcceleratorOptions().match_single_device(true);
}

BatchShare own_share(int64_t global) {
  auto& processes = accel::detail::communicator();
  return BatchShare::of(global, processes.rank(), processes.size());
}

/// Draws for a batch `x`; the samples are along dimension `dim` of the result.
struct DrawCase {
  std::string name;
  std::function<Tensor(const Tensor& x)> draw;
  int64_t dim = 0;
};

Tensor dropout_of_heads(const Tensor& x) {
  return torch::dropout(
      x.unsqueeze(1).expand({x.size(0), 3, 6}).reshape({-1, 6}), 0.5, true);
}

std::vector<DrawCase> draw_cases() {
  namespace F = torch::nn::functional;
  const auto images = [](const Tensor& x) {
    return x.view({x.size(0), 2, 3, 1}).expand({x.size(0), 2, 3, 3});
  };
  return {
      {"randn", [](auto& x) { return torch::randn({x.size(0), 20}); }},
      {"randn one-dimensional",
       [](auto& x) { return torch::randn({x.size(0)}); }},
      {"rand", [](auto& x) { return torch::rand({x.size(0), 3}); }},
      {"randint", [](auto& x) { return torch::randint(9, {x.size(0), 3}); }},
      {"randn_like", [](auto& x) { return torch::randn_like(x); }},
      {"rand_like", [](auto& x) { return torch::rand_like(x); }},
      {"randint_like", [](auto& x) { return torch::randint_like(x, 5); }},
      {"channels last",
       [=](auto& x) {
         return torch::randn_like(
             images(x).contiguous(at::MemoryFormat::ChannelsLast));
       }},
      {"time first",
       [](auto& x) { return torch::randn({13, x.size(0), 10}); },
       1},
      {"transposed",
       [](auto& x) {
         auto result = torch::empty({6, x.size(0)}).t();
         return result.normal_();
       }},
      {"slice with gaps",
       [](auto& x) {
         auto result = torch::zeros({x.size(0), 9});
         return result.narrow(1, 2, 5).uniform_();
       }},
      {"normal of sizes",
       [](auto& x) { return torch::normal(2, 3, {x.size(0), 4}); }},
      {"normal of means", [](auto& x) { return at::normal(x, 0.5); }},
      {"normal of deviations",
       [](auto& x) { return at::normal(1., x.abs()); }},
      {"normal of both",
       [](auto& x) { return at::normal(x.narrow(1, 0, 1), x.abs()); }},
      {"bernoulli of probabilities",
       [](auto& x) { return torch::bernoulli(torch::sigmoid(x)); }},
      {"bernoulli", [](auto& x) { return torch::bernoulli(x, 0.3); }},
      {"exponential",
       [](auto& x) { return torch::empty_like(x).exponential_(); }},
      {"geometric",
       [](auto& x) { return torch::empty_like(x).geometric_(0.4); }},
      {"cauchy", [](auto& x) { return torch::empty_like(x).cauchy_(); }},
      {"log normal",
       [](auto& x) { return torch::empty_like(x).log_normal_(); }},
      {"random", [](auto& x) { return torch::empty_like(x).random_(); }},
      {"dropout", [](auto& x) { return torch::dropout(x, 0.4, true); }},
      {"dropout in place",
       [](auto& x) {
         auto result = x.clone();
         return torch::dropout_(result, 0.4, true);
       }},
      {"dropout2d",
       [=](auto& x) { return F::dropout2d(images(x), F::Dropout2dFuncOptions().p(0.5)); }},
      {"alpha_dropout",
       [](auto& x) { return torch::alpha_dropout(x, 0.4, true); }},
      {"feature_alpha_dropout",
       [=](auto& x) {
         return torch::feature_alpha_dropout(images(x), 0.4, true);
       }},
      {"multinomial one",
       [](auto& x) { return torch::multinomial(x.softmax(1), 1); }},
      {"multinomial with replacement",
       [](auto& x) { return torch::multinomial(x.softmax(1), 4, true); }},
      {"multinomial without replacement",
       [](auto& x) { return torch::multinomial(x.softmax(1), 4); }},
      {"poisson", [](auto& x) { return torch::poisson(x.exp() * 9); }},
      {"binomial",
       [](auto& x) {
         return torch::binomial(torch::full_like(x, 30), torch::sigmoid(x));
       }},
      {"gamma", [](auto& x) { return at::_standard_gamma(x.abs() + 0.1); }},
      {"dirichlet",
       [](auto& x) { return at::_sample_dirichlet(x.abs() + 0.1); }},
      {"rrelu", [](auto& x) { return torch::rrelu(x, 0.1, 0.4, true); }},
      {"module in float64",
       [](auto& x) {
         return torch::nn::Dropout(0.3)->forward(x.to(torch::kDouble));
       }},
  };
}

} // namespace

ACCEL_RANK_FUNCTION(draws_for_rows) {
  Accelerator accelerator(match());
  torch::manual_seed(1);
  for (const int64_t global : {2, 5, 7, 8, 24}) {
    const auto whole = torch::randn({global, 6});
    const auto share = own_share(global);
    for (const auto& one : draw_cases()) {
      SCOPED_TRACE(one.name + ", batch of " + std::to_string(global));
      torch::manual_seed(global);
      const auto expected = one.draw(whole);
      const auto after = torch::rand({1});
      const auto state = generator_state();

      torch::manual_seed(global);
      GradientState::get().set_share(share);
      const auto drawn =
          one.draw(whole.narrow(0, share.offset, share.rows()));
      GradientState::get().clear_share();
      const auto next = torch::rand({1});
      EXPECT_TRUE(torch::equal(generator_state(), state));
      EXPECT_TRUE(torch::equal(next, after));
      ASSERT_EQ(drawn.dim(), expected.dim());
      EXPECT_TRUE(torch::equal(
          drawn,
          expected.narrow(one.dim, share.offset, drawn.size(one.dim))));
      EXPECT_EQ(drawn.size(one.dim), share.rows());
    }
  }
}

TEST(RandomNumbers, AreThoseOfOneDevicesRows) {
  for (const int world : {1, 2, 3, 4}) {
    accel::test::run_and_expect_success("draws_for_rows", world);
  }
}

ACCEL_RANK_FUNCTION(draws_of_other_shapes) {
  Accelerator accelerator(match());
  const int64_t world = accelerator.state().num_processes();
  const int64_t global = 8 * world + 1; // 9 rows, or 8
  const auto share = own_share(global);
  const auto program = [&](const BatchShare& rows) {
    std::vector<Tensor> fixed;
    torch::manual_seed(6);
    fixed.push_back(torch::rand({1}));
    fixed.push_back(torch::randn({10, 4}));
    fixed.push_back(torch::randint(100, {}));
    // As large as the part of some process.
    fixed.push_back(torch::randn({8, 3}));
    fixed.push_back(torch::randn({9, 5}));
    torch::rand({rows.rows(), 7});
    fixed.push_back(torch::randperm(5));
    fixed.push_back(torch::rand({9, 3}));
    fixed.push_back(torch::rand({2, 8}));
    return fixed;
  };
  const auto expected = program({global, 0, global});
  const auto state = generator_state();
  GradientState::get().set_share(share);
  const auto drawn = program(share);
  GradientState::get().clear_share();
  EXPECT_TRUE(torch::equal(generator_state(), state));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::equal(drawn[i], expected[i])) << "draw " << i;
  }
}

TEST(RandomNumbers, OfOtherShapesAreDrawnAlike) {
  for (const int world : {2, 3, 4}) {
    accel::test::run_and_expect_success("draws_of_other_shapes", world);
  }
}

// In a short last batch every process may have one row: only the earlier
// batches tell a number for each sample from a number for all.
ACCEL_RANK_FUNCTION(draws_in_short_batches) {
  Accelerator accelerator(match());
  const int64_t world = accelerator.state().num_processes();
  std::vector<Tensor> coins[2];
  std::vector<Tensor> steps[2];
  for (const bool whole : {true, false}) {
    torch::manual_seed(2);
    for (const int64_t global : {6 * world, world, world + 1}) {
      const auto share =
          whole ? BatchShare{global, 0, global} : own_share(global);
      if (!whole) {
        GradientState::get().set_share(share);
      }
      coins[whole].push_back(torch::rand({1}));
      auto step = torch::randint(1000, {share.rows()});
      steps[whole].push_back(
          whole ? step.narrow(
                      0, own_share(global).offset, own_share(global).rows())
                : step);
      GradientState::get().clear_share();
    }
  }
  for (size_t batch = 0; batch < 3; ++batch) {
    EXPECT_TRUE(torch::equal(coins[0][batch], coins[1][batch])) << batch;
    EXPECT_TRUE(torch::equal(steps[0][batch], steps[1][batch])) << batch;
  }
}

TEST(RandomNumbers, KeepTheirKindInShortBatches) {
  for (const int world : {2, 3}) {
    accel::test::run_and_expect_success("draws_in_short_batches", world);
  }
}

ACCEL_RANK_FUNCTION(draws_in_heads) {
  Accelerator accelerator(match());
  for (const int64_t global : {8, 11}) {
    const auto share = own_share(global);
    const auto whole = torch::ones({global, 6});
    torch::manual_seed(8);
    const auto expected = dropout_of_heads(whole);
    const auto state = generator_state();
    torch::manual_seed(8);
    GradientState::get().set_share(share);
    const auto drawn =
        dropout_of_heads(whole.narrow(0, share.offset, share.rows()));
    GradientState::get().clear_share();
    EXPECT_TRUE(torch::equal(
        drawn, expected.narrow(0, 3 * share.offset, 3 * share.rows())));
    EXPECT_TRUE(torch::equal(generator_state(), state));
  }
}

TEST(RandomNumbers, DropoutKnowsFoldedBatches) {
  for (const int world : {2, 3}) {
    accel::test::run_and_expect_success("draws_in_heads", world);
  }
}

ACCEL_RANK_FUNCTION(permutes_own_rows) {
  Accelerator accelerator(match());
  const auto share = own_share(9);
  torch::manual_seed(8);
  torch::randperm(9);
  const auto state = generator_state();
  torch::manual_seed(8);
  GradientState::get().set_share(share);
  const auto order = torch::randperm(share.rows());
  GradientState::get().clear_share();
  EXPECT_TRUE(torch::equal(
      std::get<0>(order.sort()), torch::arange(share.rows())));
  EXPECT_TRUE(torch::equal(generator_state(), state));
}

TEST(RandomNumbers, PermutationsStayWithinTheProcess) {
  const auto results =
      accel::test::run_and_expect_success("permutes_own_rows", 2);
  EXPECT_NE(results.at(0).error.find("randperm(5)"), std::string::npos)
      << results.at(0).error;
}

ACCEL_RANK_FUNCTION(draws_in_other_threads) {
  Accelerator accelerator(match());
  const auto share = own_share(8);
  torch::manual_seed(8);
  const auto expected = torch::rand({share.rows(), 3});
  torch::manual_seed(8);
  GradientState::get().set_share(share);
  Tensor drawn;
  std::thread([&] { drawn = torch::rand({share.rows(), 3}); }).join();
  EXPECT_TRUE(torch::equal(drawn, expected));
}

TEST(RandomNumbers, OfOtherThreadsAreLeftAlone) {
  accel::test::run_and_expect_success("draws_in_other_threads", 2);
}

ACCEL_RANK_FUNCTION(draws_in_accelerates_mode) {
  Accelerator accelerator;
  torch::manual_seed(8);
  const auto expected = torch::rand({4, 3});
  torch::manual_seed(8);
  GradientState::get().set_share(own_share(8));
  EXPECT_TRUE(torch::equal(torch::rand({4, 3}), expected));
}

TEST(RandomNumbers, AreLeftAloneInAcceleratesMode) {
  accel::test::run_and_expect_success("draws_in_accelerates_mode", 2);
}
