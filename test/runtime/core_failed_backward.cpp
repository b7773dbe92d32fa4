#include "gradients.h"

// A backward that fails, is caught, and is left behind.

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;

namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<torch::Tensor> parameters;
};

/// The third of five steps fails in backward, beside layers whose gradients are there by
/// then, and is left out.
Trained train(Accelerator* accelerator, bool zeroes) {
  torch::manual_seed(4);
  torch::nn::Sequential net(
      torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16),
      torch::nn::Tanh(), torch::nn::Linear(16, 1));
  net->to(torch::kDouble);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(net->parameters(), 0.05);
  if (accelerator != nullptr) {
    accelerator->prepare(net, optimizer);
  }
  Trained trained;
  for (int i = 0; i < 5; ++i) {
    auto x = torch::arange(48, torch::kDouble).add(i).sin().reshape({8, 6});
    if (accelerator != nullptr && accelerator->state().match_single_device()) {
      x = accelerator->distribute(x);
    }
    auto hidden = torch::tanh(net[0]->as<torch::nn::Linear>()->forward(x));
    if (i == 2) {
      hidden.register_hook([](torch::Tensor) -> torch::Tensor {
        throw std::runtime_error("not a number");
      });
    }
    auto out = torch::tanh(net[2]->as<torch::nn::Linear>()->forward(hidden));
    auto loss = (net[4]->as<torch::nn::Linear>()->forward(out) - 1).pow(2).mean();
    try {
      accelerator != nullptr ? accelerator->backward(loss) : loss.backward();
      optimizer.step();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(i, 2) << error.what();
      if (!zeroes) {
        continue;
      }
    }
    optimizer.zero_grad();
    trained.losses.push_back(loss.item<double>());
  }
  for (const auto& parameter : net->parameters()) {
    trained.parameters.push_back(parameter.detach().clone());
  }
  return trained;
}

AcceleratorOptions options_of_test() {
  auto options = AcceleratorOptions().bucket_cap_mb(0.0002); // several are on their way
  if (std::getenv("FAILED_BACKWARD_FSDP") != nullptr) {
    options.fsdp_plugin(accel::FullyShardedDataParallelPlugin());
  }
  return options.match_single_device(std::getenv("FAILED_BACKWARD_MATCHES") != nullptr);
}

} // namespace

ACCEL_RANK_FUNCTION(failed_backward) {
  const auto expected = train(nullptr, true);
  Accelerator accelerator(options_of_test());
  const auto found = train(&accelerator, true);
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12) << i;
  }
  for (size_t i = 0; i < expected.parameters.size(); ++i) {
    expect_same(
        accelerator.full(found.parameters[i]), expected.parameters[i], "parameter");
  }
}

ACCEL_RANK_FUNCTION(failed_backward_is_not_zeroed) {
  Accelerator accelerator(options_of_test());
  const auto error = error_of([&] { train(&accelerator, false); });
  EXPECT_NE(error.find("an earlier backward has failed"), std::string::npos) << error;
  EXPECT_NE(error.find("Call zero_grad of the optimizer"), std::string::npos) << error;
}

/// One process alone fails, and goes on to its next backward, where the others are not.
ACCEL_RANK_FUNCTION(failed_backward_of_one) {
  Accelerator accelerator(AcceleratorOptions().bucket_cap_mb(0.0002));
  torch::nn::Linear net(4, 2);
  accelerator.prepare(net);
  auto loss = net->forward(torch::ones({2, 4})).sum();
  if (accelerator.process_index() == 1) {
    loss.register_hook([](torch::Tensor) -> torch::Tensor {
      throw std::runtime_error("alone");
    });
  }
  try {
    accelerator.backward(loss);
  } catch (const std::runtime_error&) {
  }
  net->zero_grad();
  accelerator.backward(net->forward(torch::ones({2, 4})).sum());
}

TEST(Gradients, AFailedBackwardIsLeftBehind) {
  for (const char* mode : {"", "FAILED_BACKWARD_MATCHES", "FAILED_BACKWARD_FSDP"}) {
    RunOptions options;
    options.environment["FAILED_BACKWARD_MATCHES"] =
        *mode == '\0' ? std::nullopt : std::optional<std::string>("1");
    if (*mode != '\0') {
      options.environment[mode] = "1";
    }
    run_and_expect_success("failed_backward", 2, options);
    if (std::string(mode) != "FAILED_BACKWARD_FSDP") {
      run_and_expect_success("failed_backward_is_not_zeroed", 2, options);
    }
  }
}

TEST(Gradients, ABackwardThatFailsOnOneProcessIsNamed) {
  const auto results = run("failed_backward_of_one", 2);
  bool named = false;
  for (const auto& result : results) {
    EXPECT_FALSE(result.success());
    named = named ||
        result.error.find("backward behind one that has failed") != std::string::npos;
  }
  EXPECT_TRUE(named);
}
