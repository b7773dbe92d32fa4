// Which modules are units: Accelerate's policies. Numbers are those of one device with
// any; how many messages gather parameters is what a policy decides.

#include "training.h"

#include "distributed/collectives.h"
#include "parallel/model_units.h"

#include <memory>
#include <string>
#include <vector>

namespace accel::test {
namespace {

using Policy = AutoWrapPolicy;
using Plugin = FullyShardedDataParallelPlugin;

struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width) {
    first = register_module("first", nn::Linear(width, width));
    second = register_module("second", nn::Linear(width, width));
    scale = register_parameter("scale", torch::full({width}, 0.5));
  }
  Tensor forward(const Tensor& x) {
    return x + scale * second->forward(torch::tanh(first->forward(x)));
  }
  nn::Linear first = nullptr, second = nullptr;
  Tensor scale;
};
TORCH_MODULE(Block);

/// A table, blocks of this file's, layers of LibTorch's, and a layer that uses the table.
struct WordsImpl : nn::Module {
  explicit WordsImpl(int64_t width = 16) {
    torch::manual_seed(7);
    table = register_module("table", nn::Embedding(11, width));
    for (int i = 0; i < 2; ++i) {
      blocks->push_back(Block(width));
    }
    register_module("blocks", blocks);
    encoder = register_module(
        "encoder",
        nn::TransformerEncoder(nn::TransformerEncoderOptions(
            nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(width, 2)
                                            .dim_feedforward(2 * width)
                                            .dropout(0)),
            2)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& words) {
    auto x = table->forward(words);
    for (const auto& block : *blocks) {
      x = block->as<Block>()->forward(x);
    }
    x = encoder->forward(x.transpose(0, 1)).transpose(0, 1);
    return torch::linear(norm->forward(x), table->weight);
  }
  nn::Embedding table = nullptr;
  nn::ModuleList blocks;
  nn::TransformerEncoder encoder = nullptr;
  nn::LayerNorm norm = nullptr;
};
TORCH_MODULE(Words);

AutoWrap classes(std::vector<std::string> names) {
  return {Policy::kTransformerBasedWrap, std::move(names), 0};
}

/// How many parameters each unit of `Words` has.
std::vector<size_t> units(const AutoWrap& wrap) {
  std::vector<size_t> sizes;
  for (const auto& unit : parallel::model_units(*Words(), wrap)) {
    sizes.push_back(unit.size());
  }
  return sizes;
}

TEST(AutoWrap, UnitsAreTheModulesThatAPolicyNames) {
  using Sizes = std::vector<size_t>;
  // The rest of the model is the last unit: the table and the norm.
  EXPECT_EQ(units({Policy::kNoWrap, {}, 0}), (Sizes{5 + 5 + 12 + 12 + 3}));
  EXPECT_EQ(units(classes({"Block"})), (Sizes{5, 5, 12 + 12 + 3}));
  EXPECT_EQ(units(classes({})), (Sizes{12, 12, 5 + 5 + 3}));
  for (const char* name :
       {"TransformerEncoderLayer", "TransformerEncoderLayerImpl",
        "nn::TransformerEncoderLayer", "torch::nn::TransformerEncoderLayerImpl"}) {
    EXPECT_EQ(units(classes({name})), (Sizes{12, 12, 5 + 5 + 3})) << name;
  }
  EXPECT_EQ(units(classes({"accel::test::Block", "TransformerEncoderLayer"})),
            (Sizes{5, 5, 12, 12, 3}));
  // A unit within another is one of its own.
  EXPECT_EQ(units(classes({"Block", "Linear"})),
            (Sizes{2, 2, 1, 2, 2, 1, 2, 2, 2, 2, 2, 2, 6 + 6 + 3}));
  // 560 numbers in a block, 1088 in attention, which is not taken apart, 1136 in what
  // else a layer has.
  EXPECT_EQ(
      units({Policy::kSizeBasedWrap, {}, 560}), (Sizes{5, 5, 4, 8, 4, 8, 3}));
  EXPECT_EQ(units({Policy::kSizeBasedWrap, {}, 561}), (Sizes{4, 8, 4, 8, 5 + 5 + 3}));
  EXPECT_EQ(units({Policy::kSizeBasedWrap, {}, 1089}), (Sizes{12, 12, 5 + 5 + 3}));
  EXPECT_EQ(units({Policy::kSizeBasedWrap, {}, 1 << 20}), (Sizes{37}));
  EXPECT_EQ(units({Policy::kSizeBasedWrap, {}, 0}), (Sizes{37}));
}

AcceleratorOptions wrapped(const Plugin& plugin) {
  return AcceleratorOptions().match_single_device(true).fsdp_plugin(plugin);
}

std::vector<Plugin> policies() {
  return {
      Plugin().auto_wrap_policy(Policy::kNoWrap),
      Plugin().auto_wrap_policy(Policy::kSizeBasedWrap).min_num_params(300),
      Plugin()
          .auto_wrap_policy(Policy::kTransformerBasedWrap)
          .transformer_cls_names_to_wrap({"Linear", "BatchNorm1d"})};
}

ACCEL_RANK_FUNCTION(auto_wrap_trains_like_one_device) {
  for (auto plugin : policies()) {
    for (const auto strategy :
         {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp}) {
      plugin.sharding_strategy(strategy);
      if (plugin.auto_wrap_policy() == Policy::kSizeBasedWrap) {
        plugin.min_num_params(40); // tables and layers
      }
      expect_trains_like_one_device<optim::Adam>(
          wrapped(plugin), optim::AdamOptions(0.01).amsgrad(true));
      expect_trains_like_one_device<optim::SGD>(
          wrapped(plugin), optim::SGDOptions(0.1).momentum(0.9));
    }
  }
}

/// Four steps of `Words`; losses, and a sum over each parameter.
std::vector<double> train_words(Accelerator* run) {
  Words net;
  const optim::AdamOptions how(0.01);
  std::unique_ptr<optim::Adam> optimizer;
  if (run != nullptr) {
    optimizer = std::make_unique<AcceleratedOptimizer<optim::Adam>>(net->parameters(), how);
    run->prepare(net, *optimizer);
  } else {
    optimizer = std::make_unique<optim::Adam>(net->parameters(), how);
  }
  std::vector<double> seen;
  for (int64_t i = 0; i < 4; ++i) {
    auto x = (torch::arange(30) * (i + 3) + i).remainder(11).view({6, 5});
    auto y = (x + 1).remainder(11);
    if (run != nullptr) {
      x = run->distribute(x);
      y = run->distribute(y);
    }
    seen.push_back(clipped_step(run, *net, *optimizer, 0.5, [&] {
      return torch::cross_entropy_loss(net->forward(x).view({-1, 11}), y.view({-1}));
    }));
  }
  for (const auto& parameter : net->parameters()) {
    seen.push_back(parameter.detach().abs().sum().item<double>());
  }
  return seen;
}

ACCEL_RANK_FUNCTION(auto_wrap_of_a_transformer) {
  const auto expected = train_words(nullptr);
  auto all = policies();
  all[2].transformer_cls_names_to_wrap({"Block", "TransformerEncoderLayer"});
  all.push_back(Plugin().auto_wrap_policy(Policy::kTransformerBasedWrap));
  for (const auto& plugin : all) {
    Accelerator accelerator(wrapped(plugin));
    const auto actual = train_words(&accelerator);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-9)
          << to_string(accelerator.state().options().auto_wrap) << ", " << i;
    }
  }
}

TEST(AutoWrap, TrainsLikeOneDevice) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("auto_wrap_trains_like_one_device", processes, patient());
    run_and_expect_success("auto_wrap_of_a_transformer", processes, patient());
  }
}

/// Messages that gather parameters in one forward.
ACCEL_RANK_FUNCTION(auto_wrap_messages) {
  const auto x = (torch::arange(30) * 3).remainder(11).view({6, 5});
  const auto gathers = [&](const Plugin& plugin) {
    Accelerator accelerator(wrapped(plugin));
    Words net;
    accelerator.prepare(net);
    const auto words = accelerator.distribute(x);
    torch::NoGradGuard no_grad;
    const int64_t before = ad::traffic().gathers;
    net->forward(words);
    return ad::traffic().gathers - before;
  };
  EXPECT_EQ(gathers(Plugin().auto_wrap_policy(Policy::kNoWrap)), 1);
  // The rest, two blocks, two layers, and the rest again, for the table is used twice.
  EXPECT_EQ(gathers(Plugin()
                        .auto_wrap_policy(Policy::kTransformerBasedWrap)
                        .transformer_cls_names_to_wrap(
                            {"Block", "TransformerEncoderLayer"})),
            6);
  EXPECT_EQ(gathers(Plugin()
                        .sharding_strategy(ShardingStrategy::kShardGradOp)
                        .auto_wrap_policy(Policy::kTransformerBasedWrap)
                        .transformer_cls_names_to_wrap(
                            {"Block", "TransformerEncoderLayer"})),
            5);
}

TEST(AutoWrap, EachUnitIsOneMessage) {
  run_and_expect_success("auto_wrap_messages", 2, patient());
}

// ---- What is asked for.

ACCEL_RANK_FUNCTION(auto_wrap_of_no_class) {
  const auto says = [](std::vector<std::string> names, const std::string& part) {
    Accelerator accelerator(wrapped(Plugin()
                                        .auto_wrap_policy(Policy::kTransformerBasedWrap)
                                        .transformer_cls_names_to_wrap(std::move(names))));
    const auto net = std::make_shared<Net>();
    AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
    accelerator.prepare(net, optimizer);
    expect_error([&] { step(&accelerator, net, optimizer, 0); }, part);
  };
  says({"Linear", "Blocks"}, "no module of a prepared model is a Blocks. Give others");
  says({"Blocks"}, "There are: BatchNorm1d, Embedding, Linear, Net.");
  says({}, "has neither TransformerEncoderLayer nor TransformerDecoderLayer");
}

TEST(AutoWrap, RefusesClassesThatNoModuleHas) {
  run_and_expect_success("auto_wrap_of_no_class", 2, patient());
}

TEST(AutoWrap, IsAskedForByArgumentsAndVariables) {
  const auto match = AcceleratorOptions().match_single_device(true);
  EXPECT_EQ(resolve(sharded()).auto_wrap, AutoWrap());
  ::setenv("FSDP_AUTO_WRAP_POLICY", "transformer_based_wrap", 1);
  ::setenv("FSDP_TRANSFORMER_CLS_TO_WRAP", "Block, Embeddings", 1);
  ::setenv("FSDP_MIN_NUM_PARAMS", "100000000.0", 1);
  EXPECT_EQ(resolve(match).auto_wrap, AutoWrap()); // FSDP is not used
  EXPECT_EQ(resolve(sharded()).auto_wrap, classes({"Block", "Embeddings"}));
  EXPECT_EQ(to_string(resolve(sharded()).auto_wrap),
            "TRANSFORMER_BASED_WRAP of Block, Embeddings");
  // What the program says counts.
  EXPECT_EQ(resolve(wrapped(Plugin().auto_wrap_policy(Policy::kNoWrap))).auto_wrap,
            (AutoWrap{Policy::kNoWrap, {}, 0}));
  const auto size = Plugin().auto_wrap_policy(Policy::kSizeBasedWrap);
  EXPECT_EQ(resolve(wrapped(size)).auto_wrap.min_num_params, 100000000);
  ::setenv("FSDP_MIN_NUM_PARAMS", "2000", 1);
  EXPECT_EQ(resolve(wrapped(size)).auto_wrap.min_num_params, 2000);
  expect_refused(
      wrapped(Plugin().min_num_params(3)),
      "min_num_params, which is for auto_wrap_policy SIZE_BASED_WRAP, and that is "
      "TRANSFORMER_BASED_WRAP");
  ::setenv("FSDP_MIN_NUM_PARAMS", "many", 1);
  expect_refused(sharded(), "FSDP_MIN_NUM_PARAMS is 'many': many is not a whole number");
  ::unsetenv("FSDP_MIN_NUM_PARAMS");
  ::setenv("FSDP_AUTO_WRAP_POLICY", "WRAP", 1);
  expect_refused(sharded(), "WRAP is none of TRANSFORMER_BASED_WRAP");
  ::unsetenv("FSDP_AUTO_WRAP_POLICY");
  ::unsetenv("FSDP_TRANSFORMER_CLS_TO_WRAP");
  expect_refused(
      wrapped(Plugin().transformer_cls_names_to_wrap({"Block"})),
      "is for auto_wrap_policy TRANSFORMER_BASED_WRAP, and that is not given");
}

// ---- States in the host's memory.

ACCEL_RANK_FUNCTION(cpu_offload_trains_like_one_device) {
  expect_trains_like_one_device<optim::Adam>(
      wrapped(Plugin().cpu_offload(true)), optim::AdamOptions(0.01));
}

TEST(CpuOffload, IsWhatIsDoneOnCpus) {
  int said = 0;
  for (const auto& result :
       run_and_expect_success("cpu_offload_trains_like_one_device", 2, patient())) {
    said += contains(result.error, "lie in the host's memory anyway") ? 1 : 0;
  }
  EXPECT_EQ(said, 1); // by process 0
  ::setenv("FSDP_OFFLOAD_PARAMS", "true", 1);
  EXPECT_TRUE(resolve(sharded()).cpu_offload);
  EXPECT_FALSE(resolve(wrapped(Plugin().cpu_offload(false))).cpu_offload);
  EXPECT_FALSE(resolve(AcceleratorOptions().match_single_device(true)).cpu_offload);
  ::setenv("FSDP_OFFLOAD_PARAMS", "perhaps", 1);
  expect_refused(sharded(), "FSDP_OFFLOAD_PARAMS is 'perhaps': perhaps is neither");
  ::unsetenv("FSDP_OFFLOAD_PARAMS");
}

} // namespace
} // namespace accel::test
