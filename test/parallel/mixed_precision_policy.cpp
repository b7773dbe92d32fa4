// The types in which a divided model is used: weights are gathered in that which
// operators read, gradients are summed in that which is asked for.

#include "training.h"

#include "distributed/collectives.h"

#include <functional>
#include <string>
#include <vector>

namespace accel::test {
namespace {

AcceleratorOptions in_types(
    const MixedPrecisionPolicy& policy,
    ShardingStrategy strategy = ShardingStrategy::kFullShard) {
  return AcceleratorOptions().match_single_device(true).fsdp_plugin(
      FullyShardedDataParallelPlugin()
          .sharding_strategy(strategy)
          .mixed_precision_policy(policy));
}

/// Four steps of two layers in float32; losses, and all parameters at the end.
std::vector<Tensor> train_layers(Accelerator* run, bool autocast) {
  auto net = wide_layers(2, 64);
  const optim::SGDOptions how(0.1);
  std::unique_ptr<optim::SGD> optimizer;
  if (run != nullptr) {
    optimizer = std::make_unique<AcceleratedOptimizer<optim::SGD>>(net->parameters(), how);
    run->prepare(net, *optimizer);
  } else {
    optimizer = std::make_unique<optim::SGD>(net->parameters(), how);
  }
  std::vector<Tensor> seen;
  for (int64_t i = 0; i < 4; ++i) {
    torch::manual_seed(i);
    auto x = torch::randn({6, 64});
    if (run != nullptr) {
      x = run->distribute(x);
    }
    const double loss = clipped_step(run, *net, *optimizer, 100, [&] {
      if (!autocast) {
        return net->forward(x).pow(2).mean();
      }
      if (run != nullptr) {
        const auto cast = run->autocast();
        return net->forward(x).to(torch::kFloat).pow(2).mean();
      }
      // What autocast does.
      const auto p = net->parameters();
      auto y = x;
      for (size_t k = 0; k < p.size(); k += 2) {
        y = torch::tanh(torch::linear(
            y.to(torch::kBFloat16), p[k].to(torch::kBFloat16),
            p[k + 1].to(torch::kBFloat16)));
      }
      return y.to(torch::kFloat).pow(2).mean();
    });
    seen.push_back(torch::full({}, loss, torch::kDouble));
  }
  for (const auto& parameter : net->parameters()) {
    seen.push_back(ad::full_tensor(parameter.detach()).to(torch::kDouble));
  }
  return seen;
}

void expect_close(
    const std::vector<Tensor>& actual,
    const std::vector<Tensor>& expected,
    double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], tolerance, tolerance))
        << i << ": " << (actual[i] - expected[i]).abs().max();
  }
}

/// Sums with more bits are those of one device; in the parameter's type they are what
/// they are without a policy.
ACCEL_RANK_FUNCTION(policy_sums_with_more_bits) {
  for (const auto strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
    expect_trains_like_one_device<optim::Adam>(
        in_types(MixedPrecisionPolicy().reduce_dtype(torch::kDouble), strategy),
        optim::AdamOptions(0.01));
  }
  const auto expected = train_layers(nullptr, false);
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    Accelerator accelerator(in_types(MixedPrecisionPolicy().reduce_dtype(dtype)));
    expect_close(train_layers(&accelerator, false), expected, 1e-6);
  }
}

TEST(MixedPrecisionPolicy, SumsGradientsWithMoreBits) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("policy_sums_with_more_bits", processes, patient());
  }
}

/// With fewer bits: what is sent is half, and a gradient has no more bits than that.
ACCEL_RANK_FUNCTION(policy_sums_with_fewer_bits) {
  auto plain = wide_layers(1);
  torch::manual_seed(1);
  const auto x = torch::randn({6, kWide});
  plain->forward(x).pow(2).mean().backward();
  const auto sent = [&](const AcceleratorOptions& how, bool rounded) {
    Accelerator accelerator(how);
    auto net = wide_layers(1);
    accelerator.prepare(net);
    const auto loss = net->forward(accelerator.distribute(x)).pow(2).mean();
    const int64_t before = ad::traffic().bytes;
    accelerator.backward(loss);
    const int64_t bytes = ad::traffic().bytes - before;
    for (size_t i = 0; i < 2; ++i) {
      const auto gradient = ad::full_tensor(net->parameters()[i].grad());
      EXPECT_EQ(gradient.scalar_type(), torch::kFloat);
      const auto expected = plain->parameters()[i].grad();
      // Parts are larger than their sum, and so is their rounding.
      EXPECT_LE(
          ((gradient - expected).abs().max() / expected.abs().max()).item<double>(),
          rounded ? 1e-2 : 1e-5);
      const auto again = gradient.to(torch::kBFloat16).to(torch::kFloat);
      EXPECT_EQ(torch::equal(again, gradient), rounded) << i;
    }
    return bytes;
  };
  const auto policy = MixedPrecisionPolicy().reduce_dtype(torch::kBFloat16);
  const int64_t all = sent(sharded(), false);
  EXPECT_EQ(sent(in_types(policy), true), all / 2);
  if (std::string(std::getenv("WORLD_SIZE")) == "4") {
    auto groups = in_types(policy, ShardingStrategy::kHybridShard);
    groups.parallelism_config(
        ParallelismConfig().dp_replicate_size(2).dp_shard_size(2));
    sent(groups, true);
  }
}

TEST(MixedPrecisionPolicy, SumsGradientsWithFewerBits) {
  for (const int processes : {2, 4}) {
    run_and_expect_success("policy_sums_with_fewer_bits", processes, patient());
  }
}

/// Weights are gathered in the type that operators read.
ACCEL_RANK_FUNCTION(policy_gathers_in_type) {
  const auto expected = train_layers(nullptr, true);
  {
    Accelerator accelerator(
        in_types(MixedPrecisionPolicy().param_dtype(torch::kBFloat16)));
    EXPECT_EQ(accelerator.state().options().mixed_precision, MixedPrecision::kBF16);
    // Sums of rounded products, in another order.
    expect_close(train_layers(&accelerator, true), expected, 2e-3);
    auto net = wide_layers(1);
    accelerator.prepare(net);
    // So many rows that the weights are what is smaller.
    const auto x = accelerator.distribute(torch::ones({4 * kWide, kWide}));
    torch::NoGradGuard no_grad;
    const int64_t before = ad::traffic().bytes;
    const auto cast = accelerator.autocast();
    net->forward(x);
    // Parts that are not equally large are sent with room for the largest.
    EXPECT_NEAR(
        ad::traffic().bytes - before, 2 * (kWide * kWide + kWide), 4 * (kWide + 1));
  }
}

TEST(MixedPrecisionPolicy, GathersWeightsInTheTypeThatIsRead) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("policy_gathers_in_type", processes, patient());
  }
}

TEST(MixedPrecisionPolicy, RefusesWhatItCannotDo) {
  const auto policy = [] { return MixedPrecisionPolicy(); };
  expect_refused(
      in_types(policy().output_dtype(torch::kFloat)), "gives output_dtype Float");
  expect_refused(
      in_types(policy().cast_forward_inputs(true)), "cast_forward_inputs of");
  expect_refused(
      in_types(policy().param_dtype(torch::kFloat)), "weights are read in BFloat16");
  expect_refused(
      in_types(policy().reduce_dtype(torch::kInt)), "summed in BFloat16, Half, Float");
  expect_refused(
      in_types(policy().param_dtype(torch::kHalf)).mixed_precision(MixedPrecision::kBF16),
      "is Half, and mixed_precision bf16");
  expect_refused(
      in_types(policy().reduce_dtype(torch::kBFloat16))
          .parallelism_config(ParallelismConfig().dp_shard_size(2).tp_size(2)),
      "each gradient is summed by itself");
  const auto seen = resolve(in_types(policy()
                                         .cast_forward_inputs(false)
                                         .reduce_dtype(torch::kFloat)
                                         .param_dtype(torch::kBFloat16)));
  EXPECT_EQ(seen.reduce_dtype, torch::kFloat);
  EXPECT_EQ(seen.mixed_precision, MixedPrecision::kBF16);
}

} // namespace
} // namespace accel::test
