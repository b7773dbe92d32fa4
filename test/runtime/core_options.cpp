// Options beyond those that decide how work is shared: how gradients travel,
// autocast, the printed plan, and the check of headers against library.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::AutocastOptions;
using accel::CommHook;
using accel::test::error_of;

const accel::OptionInForce& named(
    const std::vector<accel::OptionInForce>& all,
    const std::string& name) {
  return *std::find_if(all.begin(), all.end(), [&](const auto& option) {
    return option.name == name;
  });
}

} // namespace

// What Python's hooks compute: each process's gradient is rounded, divided,
// rounded, and then summed in that type.
ACCEL_RANK_FUNCTION(compressed_gradients) {
  for (const auto hook : {CommHook::kFP16, CommHook::kBF16}) {
    const auto type = hook == CommHook::kFP16 ? torch::kHalf : torch::kBFloat16;
    Accelerator accelerator(AcceleratorOptions().comm_hook(hook));
    const auto rank = accelerator.process_index();
    torch::nn::Linear net(torch::nn::LinearOptions(40, 1).bias(false));
    auto unused = torch::nn::Linear(3, 3);
    torch::nn::Linear doubles(2, 1);
    doubles->to(torch::kDouble);
    accelerator.prepare(net, unused, doubles);
    const auto gradient = [](int64_t r) {
      return torch::sin(torch::arange(40) + 100 * r).view({1, 40});
    };
    accelerator.backward(
        (net->weight * gradient(rank)).sum() +
        doubles->forward(torch::full({1, 2}, 1.0 / 3, torch::kDouble)).sum());
    auto expected = torch::zeros({1, 40}, type);
    for (int64_t r = 0; r < accelerator.num_processes(); ++r) {
      expected +=
          gradient(r).to(type).div(accelerator.num_processes());
    }
    EXPECT_TRUE(net->weight.grad().equal(expected.to(torch::kFloat)))
        << net->weight.grad() << expected;
    EXPECT_FALSE(net->weight.grad().equal(
        (gradient(0) + gradient(1)) / accelerator.num_processes()));
    EXPECT_EQ(net->weight.grad().scalar_type(), torch::kFloat);
    EXPECT_EQ(doubles->weight.grad().scalar_type(), torch::kDouble);
    EXPECT_NEAR(doubles->weight.grad()[0][0].item<double>(), 1.0 / 3, 1e-2);
    EXPECT_FALSE(unused->weight.grad().defined());
  }
}
TEST(GradientOptions, CompressedAsByPythonsHooks) {
  accel::test::run_and_expect_success("compressed_gradients", 2);
}

ACCEL_RANK_FUNCTION(small_buckets) {
  // A bucket for each parameter, and less than one.
  for (const double cap : {0.0001, 1e-6}) {
    Accelerator accelerator(
        AcceleratorOptions().bucket_cap_mb(cap).broadcast_buffers(false));
    torch::manual_seed(1);
    torch::nn::Sequential net(
        torch::nn::Linear(8, 8),
        torch::nn::BatchNorm1d(8),
        torch::nn::Linear(8, 1));
    accelerator.prepare(net);
    const auto x = torch::rand({4, 8}) + accelerator.process_index();
    accelerator.backward(net->forward(x).mean());
    for (const auto& parameter : net->parameters()) {
      const auto all = accelerator.gather(parameter.grad().reshape({1, -1}));
      EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
    }
    // Buffers stay each process's own.
    const auto means = accelerator.gather(
        net->named_buffers()["1.running_mean"].reshape({1, -1}));
    EXPECT_FALSE(means[0].equal(means[1]));
  }
}
TEST(GradientOptions, BucketsOfAnySizeAndOwnBuffers) {
  accel::test::run_and_expect_success("small_buckets", 2);
}

TEST(GradientOptions, WhatCannotBeIsRefused) {
  EXPECT_NE(
      error_of([] {
        accel::resolve(AcceleratorOptions()
                           .match_single_device(true)
                           .comm_hook(CommHook::kBF16));
      }).find("not those of one device"),
      std::string::npos);
  for (const double cap : {0.0, -1.0, 1e9}) {
    EXPECT_NE(
        error_of([&] {
          accel::resolve(AcceleratorOptions().bucket_cap_mb(cap));
        }).find("bucket_cap_mb is"),
        std::string::npos);
  }
}

TEST(Autocast, OptionsOfTheAcceleratorAndOfACall) {
  const auto x = torch::ones({2, 4});
  torch::nn::Linear net(4, 4);
  {
    Accelerator accelerator(
        AcceleratorOptions().mixed_precision(accel::MixedPrecision::kBF16));
    auto step = accelerator.accumulate(net);
    EXPECT_EQ(net->forward(x).scalar_type(), torch::kBFloat16);
    {
      auto full = accelerator.autocast(AutocastOptions().enabled(false));
      EXPECT_EQ(net->forward(x).scalar_type(), torch::kFloat);
    }
    {
      auto uncached = accelerator.autocast(AutocastOptions().cache_enabled(false));
      EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
      EXPECT_EQ(net->forward(x).scalar_type(), torch::kBFloat16);
    }
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    EXPECT_EQ(net->forward(x).scalar_type(), torch::kBFloat16);
  }
  {
    Accelerator accelerator(
        AcceleratorOptions()
            .mixed_precision(accel::MixedPrecision::kBF16)
            .autocast(AutocastOptions().enabled(false)));
    {
      auto step = accelerator.accumulate(net);
      EXPECT_EQ(net->forward(x).scalar_type(), torch::kFloat);
    }
    auto on = accelerator.autocast(AutocastOptions());
    EXPECT_EQ(net->forward(x).scalar_type(), torch::kBFloat16);
  }
  Accelerator accelerator;
  auto nothing = accelerator.autocast(AutocastOptions());
  EXPECT_EQ(net->forward(x).scalar_type(), torch::kFloat);
}

TEST(Plan, SaysEachValueAndItsSource) {
  ::setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4", 1);
  ::setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  const auto options = AcceleratorOptions()
                           .gradient_accumulation_steps(2)
                           .even_batches(false)
                           .device_placement(true)
                           .split_batches(false);
  const auto all = accel::options_in_force(options);
  ::setenv("ACCEL_SPLIT_BATCHES", "1", 1);
  const auto split = accel::options_in_force(options);
  ::unsetenv("ACCEL_SPLIT_BATCHES");
  const auto match = accel::options_in_force(
      AcceleratorOptions().match_single_device(true));
  const auto given = accel::options_in_force(AcceleratorOptions().mixed_precision(
      accel::MixedPrecision::kNo));
  std::string text;
  {
    Accelerator accelerator(options);
    text = accelerator.plan();
  }
  ::unsetenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  ::unsetenv("ACCELERATE_MIXED_PRECISION");

  const auto& steps = named(all, "gradient_accumulation_steps");
  EXPECT_EQ(steps.value, "4");
  EXPECT_EQ(steps.source, "environment ACCELERATE_GRADIENT_ACCUMULATION_STEPS");
  EXPECT_EQ(named(all, "mixed_precision").value, "bf16");
  EXPECT_EQ(
      named(all, "mixed_precision").source,
      "environment ACCELERATE_MIXED_PRECISION");
  EXPECT_EQ(named(given, "mixed_precision").value, "no");
  EXPECT_EQ(named(given, "mixed_precision").source, "argument");
  EXPECT_EQ(named(all, "even_batches").value, "false");
  EXPECT_EQ(named(all, "even_batches").source, "argument");
  EXPECT_EQ(named(all, "device_placement").source, "default");
  // It has no default but what the way to share the work makes of it.
  EXPECT_EQ(named(all, "split_batches").value, "false");
  EXPECT_EQ(named(all, "split_batches").source, "argument");
  EXPECT_EQ(named(split, "split_batches").value, "true");
  EXPECT_EQ(
      named(split, "split_batches").source, "environment ACCEL_SPLIT_BATCHES");
  EXPECT_EQ(named(match, "split_batches").value, "true");
  EXPECT_EQ(named(match, "split_batches").source, "default");
  EXPECT_EQ(named(all, "dispatch_batches").value, "automatic");
  EXPECT_NE(text.find("process 0 of 1"), text.npos) << text;
  for (const auto& option : all) {
    EXPECT_NE(text.find("  " + option.name + " "), text.npos) << text;
  }
}

ACCEL_RANK_FUNCTION(prints_the_plan) {
  Accelerator accelerator;
}
TEST(Plan, PrintedByTheMainProcessWhereTheEnvironmentSaysSo) {
  accel::test::RunOptions options;
  options.environment["ACCEL_PRINT_PLAN"] = "1";
  const auto results =
      accel::test::run_and_expect_success("prints_the_plan", 2, options);
  EXPECT_NE(results[0].error.find("process 0 of 2"), std::string::npos)
      << results[0].error;
  EXPECT_EQ(results[1].error.find("process 1 of 2"), std::string::npos)
      << results[1].error;
}

TEST(Version, HeadersOfAnotherBuildAreRefused) {
  auto built = accel::detail::built_with<AcceleratorOptions>();
  accel::detail::check_built_with(built);
  built.version[2] += 1;
  auto error = error_of([&] { accel::detail::check_built_with(built); });
  EXPECT_NE(error.find("Compile the program again"), error.npos) << error;
  built = accel::detail::built_with<AcceleratorOptions>();
  built.torch_version[1] -= 1;
  EXPECT_THROW(accel::detail::check_built_with(built), c10::Error);
  built = accel::detail::built_with<AcceleratorOptions>();
  built.options_size += 8;
  error = error_of([&] { accel::detail::check_built_with(built); });
  EXPECT_NE(error.find("differ in AcceleratorOptions"), error.npos) << error;
}
