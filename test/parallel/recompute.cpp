// Activation checkpointing that a program is launched with: the numbers of a training
// without it, as one process bit for bit; less memory; and what it refuses.

#include "training.h"

#include "distributed/recompute.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace accel::test {
namespace {

using distributed::Recompute;
using Plugin = FullyShardedDataParallelPlugin;

Plugin recomputing(int64_t min_num_params = 1) {
  return Plugin()
      .activation_checkpointing(true)
      .auto_wrap_policy(AutoWrapPolicy::kSizeBasedWrap)
      .min_num_params(min_num_params);
}

AcceleratorOptions with(const Plugin& plugin) {
  return AcceleratorOptions().match_single_device(true).fsdp_plugin(plugin);
}

// ---- Beside plain LibTorch, on several processes.

ACCEL_RANK_FUNCTION(recompute_trains_like_one_device) {
  for (const auto strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
        ShardingStrategy::kNoShard}) {
    const auto before = Recompute::times();
    expect_trains_like_one_device<optim::Adam>(
        with(recomputing().sharding_strategy(strategy)), optim::AdamOptions(0.01));
    EXPECT_GE(Recompute::times(), before + 6 * 3);
  }
}

TEST(Recompute, TrainsLikeOneDevice) {
  RunOptions options;
  options.timeout = std::chrono::seconds(240);
  for (const int processes : {1, 2}) {
    run_and_expect_success("recompute_trains_like_one_device", processes, options);
  }
}

// ---- The same bits.

/// What makes it hard: writes into what is there, views, dropout, statistics that are
/// updated, a layer that is used twice, and constants made in forward.
struct Hard : nn::Module {
  Hard() {
    torch::manual_seed(19);
    convolution = register_module("convolution", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    first = register_module("first", nn::Linear(64, 16));
    shared = register_module("shared", nn::Linear(16, 16));
    layer = register_module("layer", nn::LayerNorm(nn::LayerNormOptions({16})));
    last = register_module("last", nn::Linear(16, 5));
  }
  Tensor forward(const Tensor& image) {
    auto x = norm->forward(convolution->forward(image));
    x = torch::relu_(x);
    x = torch::dropout(x, 0.3, is_training()).flatten(1);
    x = torch::tanh(first->forward(x));
    // Raw writes into a constant.
    auto mask = torch::zeros_like(x.detach());
    auto* const values = mask.data_ptr<float>();
    for (int64_t i = 0; i < mask.numel(); ++i) {
      values[i] = i % 3 == 0 ? 0.5F : 1.F;
    }
    x = x * mask;
    auto y = shared->forward(x);
    y.slice(1, 0, 4).mul_(0.5);
    y += x; // x is from before
    auto z = torch::sigmoid(y) + torch::randn_like(y) * 0.01;
    z = layer->forward(shared->forward(torch::gelu(z)));
    return torch::log_softmax(last->forward(torch::sin(x) * z), 1);
  }
  nn::Conv2d convolution = nullptr;
  nn::BatchNorm2d norm = nullptr;
  nn::LayerNorm layer = nullptr;
  nn::Linear first = nullptr, shared = nullptr, last = nullptr;
};

/// All that a training leaves. `recompute`: with a unit for each module.
std::vector<Tensor> train_hard(bool recompute) {
  std::optional<Recompute> on;
  if (recompute) {
    on.emplace();
  }
  Hard net;
  if (on) {
    for (const auto& child : net.children()) {
      on->add_unit(child->parameters());
    }
  }
  optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.1).momentum(0.9));
  std::vector<Tensor> left;
  for (int64_t i = 0; i < 3; ++i) {
    const auto image = torch::randn({6, 2, 4, 4});
    const auto label = torch::arange(6).remainder(5);
    optimizer.zero_grad();
    auto loss = torch::nll_loss(net.forward(image), label);
    if (i == 1) {
      // A gradient of a gradient.
      const auto gradients = torch::autograd::grad(
          {loss}, net.parameters(), {}, /*retain_graph=*/true, /*create_graph=*/true);
      for (const auto& gradient : gradients) {
        loss = loss + 0.01 * gradient.pow(2).sum();
      }
    }
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    optimizer.step();
    left.push_back(loss.detach());
    left.push_back(torch::rand({2})); // as many random numbers were drawn
  }
  for (const auto& list : {net.parameters(), net.buffers()}) {
    left.insert(left.end(), list.begin(), list.end());
  }
  return left;
}

TEST(Recompute, GivesTheSameBits) {
  at::set_num_threads(1);
  const auto expected = train_hard(false);
  const auto before = Recompute::times();
  const auto got = train_hard(true);
  EXPECT_GE(Recompute::times(), before + 3 * 3);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
  }
}

/// Gradients of two parameters that a function uses one after the other.
template <typename Function>
std::vector<Tensor> gradients_of(bool recompute, const Function& function) {
  std::optional<Recompute> on;
  if (recompute) {
    on.emplace();
  }
  torch::manual_seed(2);
  std::vector<Tensor> weights;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(torch::randn({4, 4}).requires_grad_());
    if (on) {
      on->add_unit({weights.back()});
    }
  }
  function(weights).sum().backward();
  std::vector<Tensor> gradients;
  for (const auto& weight : weights) {
    gradients.push_back(weight.grad());
  }
  return gradients;
}

template <typename Function>
void expect_same_gradients(const Function& function) {
  const auto expected = gradients_of(false, function);
  const auto got = gradients_of(true, function);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(torch::equal(got[i], expected[i])) << got[i] << expected[i];
  }
}

TEST(Recompute, FollowsWritesIntoWhatAnEndedUnitHasRead) {
  using Weights = std::vector<Tensor>;
  // Nothing that is written was saved, so that autograd allows it.
  expect_same_gradients([](const Weights& w) {
    const auto x = torch::ones({4, 4});
    auto y = torch::tanh(torch::sigmoid(x + w[0]) * 2);
    y = torch::tanh(y + w[1]);
    x.fill_(5);
    return torch::tanh(y + w[2]);
  });
  expect_same_gradients([](const Weights& w) {
    auto x = torch::tanh(w[0]) + 0;
    auto y = torch::tanh(torch::sigmoid(x + w[1]) * 2);
    x.mul_(3); // still in the unit
    return torch::tanh(torch::sigmoid(y + w[2]) * x);
  });
  expect_same_gradients([](const Weights& w) {
    auto x = torch::tanh(w[0]) + 0;
    const auto y = torch::tanh(torch::sigmoid(x + w[1]) * 2);
    const auto z = torch::tanh(y + w[2]);
    x.add_(z); // what the second unit has read, in the third
    return torch::exp(z) + x;
  });
}

/// All that draws numbers for a layer's output, in forward as well as in its own memory.
TEST(Recompute, DrawsTheSameNumbersAgain) {
  namespace F = torch::nn::functional;
  using Layer = std::function<Tensor(Tensor)>;
  const std::vector<std::pair<const char*, Layer>> layers{
      {"dropout", [](const Tensor& x) { return F::dropout(x, F::DropoutFuncOptions().p(0.3)); }},
      {"dropout in place", [](const Tensor& x) {
         return F::dropout(x.sin(), F::DropoutFuncOptions().p(0.3).inplace(true));
       }},
      {"dropout of a view in place", [](const Tensor& x) {
         return F::dropout(x.sin().flatten(), F::DropoutFuncOptions().p(0.3).inplace(true))
             .view({4, 4});
       }},
      {"dropout2d", [](const Tensor& x) {
         return F::dropout2d(x.view({4, 4, 1, 1}), F::Dropout2dFuncOptions().p(0.3)).view({4, 4});
       }},
      {"alpha", [](const Tensor& x) {
         return F::alpha_dropout(x, F::AlphaDropoutFuncOptions().p(0.3).training(true));
       }},
      {"feature alpha", [](const Tensor& x) {
         return F::feature_alpha_dropout(
                    x.view({4, 4, 1, 1}),
                    F::FeatureAlphaDropoutFuncOptions().p(0.3).training(true))
             .view({4, 4});
       }},
      {"rrelu", [](const Tensor& x) { return F::rrelu(x, F::RReLUFuncOptions().training(true)); }},
      {"rrelu in place", [](const Tensor& x) {
         return F::rrelu(x.sin(), F::RReLUFuncOptions().training(true).inplace(true));
       }},
      {"bernoulli_", [](const Tensor& x) { return x * torch::empty({4, 1}).bernoulli_(0.8); }},
      {"exponential_", [](const Tensor& x) { return x * torch::empty_like(x).exponential_(); }},
      {"rand_like", [](const Tensor& x) { return x * torch::rand_like(x).clamp(0.1, 0.9); }},
      {"gumbel", [](const Tensor& x) {
         const auto soft = (x - (-torch::rand_like(x).clamp(1e-6, 1 - 1e-6).log()).log()).softmax(1);
         const auto hard = torch::zeros_like(soft).scatter_(1, soft.argmax(1, true), 1.);
         return (hard - soft).detach() + soft;
       }}};
  for (const auto& [name, layer] : layers) {
    SCOPED_TRACE(name);
    expect_same_gradients([&, &layer = layer](const std::vector<Tensor>& w) {
      auto x = torch::tanh(layer(torch::selu(w[0]) - 0.3));
      x = torch::tanh(layer(x.matmul(w[1]) - 0.3));
      return torch::tanh(x.matmul(w[2]));
    });
  }
}

TEST(Recompute, KeepsNothingForEver) {
  std::optional<c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>> input,
      inner;
  Recompute recompute;
  std::vector<Tensor> weights;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(torch::randn({4, 4}).requires_grad_());
    recompute.add_unit({weights.back()});
  }
  {
    auto x = torch::ones({4, 4});
    input.emplace(x.getIntrusivePtr());
    auto y = torch::sigmoid(x.matmul(weights[0]));
    inner.emplace(y.getIntrusivePtr());
    y = torch::tanh(y.exp());
    y = torch::sigmoid(y.matmul(weights[1]));
    // Autograd alone would hold it.
    EXPECT_TRUE(inner->expired());
    y.matmul(weights[2]).sum().backward();
  }
  EXPECT_TRUE(input->expired());
}

TEST(Recompute, RefusesParametersThatWereChanged) {
  Recompute recompute;
  std::vector<Tensor> biases;
  for (int i = 0; i < 3; ++i) {
    biases.push_back(torch::randn({4}).requires_grad_());
    recompute.add_unit({biases.back()});
  }
  auto x = torch::ones({4}).requires_grad_();
  for (const auto& bias : biases) {
    x = torch::tanh(torch::sigmoid(x + bias).exp());
  }
  {
    const torch::NoGradGuard no_grad;
    biases[0].add_(1);
  }
  try {
    x.sum().backward();
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("activation_checkpointing"), std::string::npos)
        << error.what();
  }
}

// ---- Memory.

/// The most bytes that this thread has had on the host at a time since it was made.
class Peak : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(
      void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override {
    return true;
  }
  int64_t now = 0;
  int64_t most = 0;
};

double peak_of_transformer(bool recompute) {
  std::optional<Recompute> on;
  if (recompute) {
    on.emplace();
  }
  torch::manual_seed(1);
  nn::TransformerEncoder net(nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayer(
          nn::TransformerEncoderLayerOptions(32, 2).dim_feedforward(64).dropout(0.1)),
      12));
  if (on) {
    for (const auto& layer : *net->layers) {
      on->add_unit(layer->parameters());
    }
  }
  const auto peak = std::make_shared<Peak>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
  net->forward(torch::randn({192, 2, 32})).pow(2).mean().backward();
  return static_cast<double>(peak->most) / (1 << 20);
}

TEST(Recompute, ATransformerNeedsLessMemory) {
  at::set_num_threads(1);
  const double without = peak_of_transformer(false);
  const double with = peak_of_transformer(true);
  RecordProperty("without_MiB", std::to_string(without));
  RecordProperty("with_MiB", std::to_string(with));
  std::printf("%.1f MiB without, %.1f MiB with\n", without, with);
  // 12 layers' activations; two layers', and the inputs of all.
  EXPECT_LT(with, without / 3);
}

// ---- What asks for it.

TEST(Recompute, IsAskedForByPluginAndEnvironment) {
  EXPECT_FALSE(resolve(sharded()).activation_checkpointing);
  EXPECT_TRUE(resolve(with(recomputing())).activation_checkpointing);
  ::setenv("FSDP_ACTIVATION_CHECKPOINTING", "true", 1);
  EXPECT_TRUE(resolve(sharded()).activation_checkpointing);
  EXPECT_FALSE(
      resolve(with(Plugin().activation_checkpointing(false))).activation_checkpointing);
  // Nobody asks for FSDP.
  EXPECT_FALSE(resolve(AcceleratorOptions().match_single_device(true))
                   .activation_checkpointing);
  ::setenv("FSDP_ACTIVATION_CHECKPOINTING", "perhaps", 1);
  expect_refused(sharded(), "FSDP_ACTIVATION_CHECKPOINTING is 'perhaps'");
  ::unsetenv("FSDP_ACTIVATION_CHECKPOINTING");
}

} // namespace
} // namespace accel::test
