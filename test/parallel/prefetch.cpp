// Units that are gathered ahead: when that begins, that it changes no bit of what is
// computed, and what happens where another unit is needed than was expected.

#include "training.h"

#include "distributed/collectives.h"
#include "distributed/recompute.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace accel::test {
namespace {

AcceleratorOptions ahead(
    std::optional<bool> forward, std::optional<BackwardPrefetch> backward) {
  return AcceleratorOptions().match_single_device(true).fsdp_plugin(
      FullyShardedDataParallelPlugin()
          .sharding_strategy(ShardingStrategy::kFullShard)
          .forward_prefetch(forward)
          .backward_prefetch(backward));
}

/// How many gatherings of units have begun while `f` ran.
template <typename F>
int64_t gathers_of(F&& f) {
  const int64_t before = ad::traffic().gathers;
  f();
  return ad::traffic().gathers - before;
}

// ---- When it begins.

struct Case {
  const char* name;
  std::optional<bool> forward;
  std::optional<BackwardPrefetch> backward;
  /// Gatherings that have begun when the first of five layers has computed.
  int64_t behind_first;
  /// When backward has computed the last layer but one: both were there, and the one
  /// before them is needed next.
  int64_t in_backward;
};

ACCEL_RANK_FUNCTION(units_begin_ahead) {
  const bool over_gloo = std::getenv("ACCEL_SHARED_MEMORY") != nullptr;
  const auto pre = BackwardPrefetch::kBackwardPre;
  const std::vector<Case> cases{
      {"nothing said", std::nullopt, std::nullopt, over_gloo ? 2 : 1,
       over_gloo ? 1 : 0},
      {"never", false, BackwardPrefetch::kNoPrefetch, 1, 0},
      {"forward", true, BackwardPrefetch::kNoPrefetch, 2, 0},
      {"before", false, pre, 1, 1},
      {"after", false, BackwardPrefetch::kBackwardPost, 1, 0},
      {"both", true, pre, 2, 1},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    Accelerator accelerator(ahead(one.forward, one.backward));
    auto net = wide_layers(5);
    AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
    accelerator.prepare(net, optimizer);
    const auto x = accelerator.distribute(torch::randn({6, kWide}));
    for (int step = 0; step < 3; ++step) {
      // The first step is the one that the others are like.
      const bool known = step > 0;
      optimizer.zero_grad();
      Tensor y, input, loss;
      EXPECT_EQ(
          gathers_of([&] { y = through(net, x, {0}); }),
          known ? one.behind_first : 1);
      EXPECT_EQ(
          gathers_of([&] {
            input = through(net, y, {1, 2});
            loss = through(net, input, {3, 4}).pow(2).sum();
          }),
          known ? 5 - one.behind_first : 4);
      const int64_t before = ad::traffic().gathers;
      int64_t there = -1;
      input.register_hook([&](const Tensor&) {
        there = ad::traffic().gathers - before;
      });
      accelerator.backward(loss);
      EXPECT_EQ(there, known ? one.in_backward : 0);
      EXPECT_EQ(ad::traffic().gathers - before, 2); // No more than without.
      optimizer.step();
    }
  }
}

TEST(Prefetch, BeginsWhileTheUnitBeforeComputes) {
  run_and_expect_success("units_begin_ahead", 2, patient());
  run_and_expect_success(
      "units_begin_ahead", 2, patient({{"ACCEL_SHARED_MEMORY", "0"}}));
}

// ---- Another order than expected.

struct Pass {
  std::vector<size_t> layers;
  /// Gatherings more than without: what was begun in vain, and what was dropped for it.
  int64_t in_vain;
};

const std::vector<Pass>& passes() {
  static const std::vector<Pass> all{
      {{0, 1, 2, 3, 4}, 0},
      {{0, 1, 2, 3, 4}, 0},
      // 1 was begun; from here on it is known what comes.
      {{0, 2, 4}, 1},
      {{0, 2, 4}, 0},
      // 4 was begun, where 0 lay.
      {{0, 2, 0, 3}, 2},
      {{0, 2, 0, 3}, 0},
      {{1}, 0},
      {{1}, 0},
  };
  return all;
}

ACCEL_RANK_FUNCTION(units_come_in_another_order) {
  torch::manual_seed(2);
  const auto x = torch::randn({6, kWide});
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> without;
  for (const bool ahead_of_use : {false, true}) {
    Accelerator accelerator(ahead(ahead_of_use, BackwardPrefetch::kNoPrefetch));
    auto plain = wide_layers(5);
    auto net = wide_layers(5);
    accelerator.prepare(net);
    for (size_t i = 0; i < passes().size(); ++i) {
      const auto& pass = passes()[i];
      Tensor y;
      const auto gathers = gathers_of([&] {
        y = through(net, accelerator.distribute(x), pass.layers);
      });
      EXPECT_TRUE(torch::allclose(
          accelerator.full(y), through(plain, x, pass.layers), 1e-4, 1e-5));
      if (ahead_of_use) {
        EXPECT_EQ(gathers, without[i] + pass.in_vain) << i;
      } else {
        without.push_back(gathers);
      }
    }
  }
}

TEST(Prefetch, DropsWhatIsNotNeeded) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("units_come_in_another_order", processes, patient());
  }
  run_and_expect_success(
      "units_come_in_another_order", 2, patient({{"ACCEL_SHARED_MEMORY", "0"}}));
}

// ---- Bits.

/// Steps with accumulation, an evaluation in between, a branch, and a write; `run` is
/// null in the plain program.
std::vector<Tensor> train(
    Accelerator* run, nn::Sequential& net, optim::Optimizer& optimizer) {
  torch::manual_seed(11);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    for (int half = 0; half < 2; ++half) {
      auto x = torch::randn({7, kWide}, net->parameters()[0].scalar_type());
      if (run != nullptr) {
        x = run->distribute(x);
      }
      const auto y = step == 2 ? through(net, x, {0, 3, 1, 4})
                               : through(net, x, {0, 1, 2, 3, 4});
      const auto loss = y.pow(2).sum();
      if (run != nullptr) {
        run->backward(loss);
      } else {
        loss.backward();
      }
      const torch::NoGradGuard no_grad;
      through(net, x, {0, 1, 2});
    }
    optimizer.step();
    if (step == 1) {
      const torch::NoGradGuard no_grad;
      net->parameters()[4].mul_(0.5);
    }
  }
  std::vector<Tensor> parameters;
  for (const auto& parameter : net->parameters()) {
    parameters.push_back(ad::full_tensor(parameter.detach()));
  }
  return parameters;
}

std::vector<Tensor> trained(
    const AcceleratorOptions& how, at::ScalarType dtype = torch::kFloat) {
  Accelerator accelerator(how);
  auto net = wide_layers(5);
  net->to(dtype);
  AcceleratedOptimizer<optim::Adam> optimizer(
      net->parameters(), optim::AdamOptions(0.001));
  accelerator.prepare(net, optimizer);
  return train(&accelerator, net, optimizer);
}

ACCEL_RANK_FUNCTION(units_ahead_change_no_bit) {
  const auto expected =
      trained(ahead(false, BackwardPrefetch::kNoPrefetch));
  for (const auto when :
       {BackwardPrefetch::kBackwardPre, BackwardPrefetch::kBackwardPost}) {
    const auto actual = trained(ahead(true, when));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(actual[i], expected[i]))
          << i << ", " << to_string(when);
    }
  }
}

TEST(Prefetch, ChangesNoBit) {
  run_and_expect_success("units_ahead_change_no_bit", 2, patient());
  run_and_expect_success(
      "units_ahead_change_no_bit", 2, patient({{"ACCEL_SHARED_MEMORY", "0"}}));
}

// What is computed again in backward reads the units that are gathered there.
ACCEL_RANK_FUNCTION(units_ahead_of_what_is_computed_again) {
  auto plain = wide_layers(5);
  plain->to(torch::kDouble);
  optim::Adam optimizer(plain->parameters(), optim::AdamOptions(0.001));
  const auto expected = train(nullptr, plain, optimizer);
  // FSDP_BACKWARD_PREFETCH says when.
  const auto before = distributed::Recompute::times();
  const auto actual = trained(
      AcceleratorOptions()
          .match_single_device(true)
          .fsdp_plugin(FullyShardedDataParallelPlugin()
                           .forward_prefetch(true)
                           .activation_checkpointing(true)),
      torch::kDouble);
  // Of eight passes all units but the last, of five layers or of four.
  EXPECT_EQ(distributed::Recompute::times() - before, 6 * 4 + 2 * 3);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-9, 1e-9))
        << i << ": " << (actual[i] - expected[i]).abs().max();
  }
}

TEST(Prefetch, GathersAheadOfWhatIsComputedAgain) {
  const char* const again = "units_ahead_of_what_is_computed_again";
  const char* const when = "FSDP_BACKWARD_PREFETCH";
  run_and_expect_success(
      again, 2, patient({{when, "BACKWARD_PRE"}, {"ACCEL_SHARED_MEMORY", "0"}}));
  run_and_expect_success(again, 3, patient({{when, "BACKWARD_POST"}}));
  for (const bool replicates : {false, true}) {
    run_and_expect_success(
        again, 4,
        patient({{when, replicates ? "BACKWARD_PRE" : "BACKWARD_POST"},
                 {"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
                 {"PARALLELISM_CONFIG_DP_SHARD_SIZE", "2"},
                 {std::string("PARALLELISM_CONFIG_") +
                      (replicates ? "DP_REPLICATE" : "TP") + "_SIZE",
                  "2"}}));
  }
}

// ---- Options.

TEST(Prefetch, IsAskedForAsInAccelerate) {
  EXPECT_FALSE(resolve(sharded()).forward_prefetch.has_value());
  EXPECT_FALSE(resolve(sharded()).backward_prefetch.has_value());
  const auto backward = [](const char* value) {
    ::setenv("FSDP_BACKWARD_PREFETCH", value, 1);
    const auto result = resolve(sharded()).backward_prefetch;
    ::unsetenv("FSDP_BACKWARD_PREFETCH");
    return result;
  };
  EXPECT_EQ(backward("BACKWARD_PRE"), BackwardPrefetch::kBackwardPre);
  EXPECT_EQ(backward("backward_post"), BackwardPrefetch::kBackwardPost);
  EXPECT_EQ(backward("2"), BackwardPrefetch::kBackwardPost);
  EXPECT_EQ(backward("NO_PREFETCH"), BackwardPrefetch::kNoPrefetch);
  ::setenv("FSDP_BACKWARD_PREFETCH", "BACKWARD", 1);
  expect_refused(sharded(), "BACKWARD is none of BACKWARD_PRE");
  ::setenv("FSDP_BACKWARD_PREFETCH", "BACKWARD_PRE", 1);
  ::setenv("FSDP_FORWARD_PREFETCH", "true", 1);
  EXPECT_EQ(resolve(sharded()).forward_prefetch, true);
  // What the program says counts.
  const auto said = resolve(ahead(false, BackwardPrefetch::kNoPrefetch));
  EXPECT_EQ(said.forward_prefetch, false);
  EXPECT_EQ(said.backward_prefetch, BackwardPrefetch::kNoPrefetch);
  ::unsetenv("FSDP_BACKWARD_PREFETCH");
  ::setenv("FSDP_FORWARD_PREFETCH", "perhaps", 1);
  expect_refused(sharded(), "perhaps is neither true nor false");
  ::unsetenv("FSDP_FORWARD_PREFETCH");
  expect_refused(
      AcceleratorOptions().match_single_device(true).fsdp_plugin(
          FullyShardedDataParallelPlugin().limit_all_gathers(false)),
      "at most one unit is gathered ahead");
  ::setenv("FSDP_LIMIT_ALL_GATHERS", "false", 1);
  expect_refused(sharded(), "one unit ahead at most");
  ::unsetenv("FSDP_LIMIT_ALL_GATHERS");
}

} // namespace
} // namespace accel::test
