// Activation checkpointing: the numbers of a training without it, on one process and
// on several, with parameters in parts.

#include "training.h"

#include <accel/activation_checkpoint.h>

#include <functional>

namespace accel::test {
namespace {

/// Two blocks, of which the first is used twice, with dropout.
struct Blocks : nn::Module {
  explicit Blocks(bool checkpoints) : checkpoints(checkpoints) {
    torch::manual_seed(11);
    first = register_module(
        "first", nn::Sequential(nn::Linear(6, 9), nn::Tanh(), nn::Dropout(0.3),
                                nn::Linear(9, 6)));
    second = register_module(
        "second", nn::Sequential(nn::Linear(6, 8), nn::GELU(), nn::Linear(8, 6)));
    to(torch::kDouble);
  }
  Tensor forward(Tensor x) {
    if (!checkpoints) {
      calls += 3;
      return second->forward(first->forward(first->forward(x)) * x);
    }
    const auto counted = [this](const Tensor& y) mutable {
      ++calls;
      return first->forward(y);
    };
    const auto y = checkpoint_activations(
        counted, checkpoint_activations(counted, x));
    return checkpoint_activations(
        [this](const Tensor& a, const Tensor& b) {
          ++calls;
          return std::vector<Tensor>{second->forward(a * b), a.detach().sum()};
        },
        y, x)[0];
  }
  bool checkpoints;
  int calls = 0;
  nn::Sequential first, second;
};

ACCEL_RANK_FUNCTION(checkpointed_training) {
  const std::string how = std::getenv("CHECKPOINTED_HOW");
  auto options = AcceleratorOptions().match_single_device(true);
  if (how == "sharded") {
    options.fsdp_plugin(FullyShardedDataParallelPlugin());
  } else if (how == "parts") {
    options.torch_tp_plugin(TorchTensorParallelPlugin().tp_size(2));
  }
  Accelerator accelerator(options);
  const auto plain = std::make_shared<Blocks>(false);
  const auto net = std::make_shared<Blocks>(true);
  optim::Adam plain_optimizer(plain->parameters(), 0.02);
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.02);
  accelerator.prepare(net, optimizer);
  for (int64_t i = 0; i < 4; ++i) {
    const auto x = torch::sin(torch::arange(42, torch::kDouble) * (i + 1)).view({7, 6});
    torch::manual_seed(i);
    plain_optimizer.zero_grad();
    const auto expected = plain->forward(x).pow(2).mean();
    expected.backward();
    plain_optimizer.step();
    const auto after = torch::rand({2});
    torch::manual_seed(i);
    optimizer.zero_grad();
    const auto input = x.clone().requires_grad_(i == 2);
    const auto loss = net->forward(accelerator.distribute(input)).pow(2).mean();
    accelerator.backward(loss);
    optimizer.step();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
    // As many random numbers were drawn.
    EXPECT_TRUE(torch::equal(torch::rand({2}), after));
  }
  expect_equal(*net, *plain, 1e-12);
  EXPECT_EQ(net->calls, 4 * 6);
  const torch::NoGradGuard no_grad;
  net->forward(torch::ones({2, 6}, torch::kDouble));
  EXPECT_EQ(net->calls, 4 * 6 + 3);
}

TEST(ActivationCheckpoint, TrainsAsWithout) {
  const auto go = [](const char* how, int processes) {
    RunOptions options;
    options.timeout = std::chrono::seconds(240);
    options.environment["CHECKPOINTED_HOW"] = how;
    run_and_expect_success("checkpointed_training", processes, options);
  };
  go("plain", 1);
  go("plain", 2);
  go("sharded", 2);
  go("parts", 2);
}

TEST(ActivationCheckpoint, KeepsNothingButInputs) {
  // What operators keep is alive as long as the graph is.
  const auto weight = torch::randn({5, 5}).requires_grad_();
  std::optional<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>>
      kept;
  const auto function = [&](const Tensor& x) {
    const auto inner = torch::sigmoid(x.matmul(weight));
    kept.emplace(inner.getIntrusivePtr());
    return inner.pow(2);
  };
  const auto without = function(torch::ones({3, 5}));
  EXPECT_FALSE(kept->expired());
  const auto with = checkpoint_activations(function, torch::ones({3, 5}));
  EXPECT_TRUE(kept->expired());
  with.sum().backward();
  const auto gradient = weight.grad().clone();
  weight.mutable_grad().reset();
  without.sum().backward();
  EXPECT_TRUE(torch::equal(gradient, weight.grad()));
}

TEST(ActivationCheckpoint, RefusesGraphsThatAreNoInputs) {
  const auto weight = torch::randn({5, 5}).requires_grad_();
  const auto captured = weight * 2;
  try {
    checkpoint_activations(
        [&](const Tensor& x) { return x.matmul(captured); }, torch::ones({3, 5}));
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("is not among the inputs"), std::string::npos)
        << error.what();
  }
  // As an input it is right.
  const auto out = checkpoint_activations(
      [](const Tensor& x, const Tensor& y) { return x.matmul(y); },
      torch::ones({3, 5}), captured);
  out.sum().backward();
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::full({5, 5}, 6.0)));
}

} // namespace
} // namespace accel::test
