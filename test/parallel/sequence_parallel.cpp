// Sequence parallelism beside tensor parallelism: activations between the layers in
// positions, against LibTorch alone.

#include "sequences.h"

#include "distributed/collectives.h"
#include "distributed/recompute.h"

#include <functional>

namespace accel::test {
namespace {

using Plan = TorchTensorParallelPlugin::Plan;

/// As TP and SHARD say; the rest of the processes are groups.
AcceleratorOptions with_plan(Plan plan) {
  const int64_t tp = size_of("TP_OF_RUN"), shard = size_of("SHARD_OF_RUN");
  return AcceleratorOptions()
      .match_single_device(true)
      .torch_tp_plugin(TorchTensorParallelPlugin().plan(std::move(plan)))
      .parallelism_config(
          ParallelismConfig().tp_size(tp).dp_shard_size(shard).dp_replicate_size(
              size_of("WORLD_SIZE") / tp / shard));
}

RunOptions mesh_of(int tp, int shard = 1) {
  return patient(
      {{"TP_OF_RUN", std::to_string(tp)}, {"SHARD_OF_RUN", std::to_string(shard)}});
}

/// As many write it: what it is divided by is of each position.
struct RMSNorm : nn::Module {
  explicit RMSNorm(int64_t n) {
    weight = register_parameter("weight", torch::linspace(0.5, 1.5, n));
  }
  Tensor forward(const Tensor& x) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-6) * weight;
  }
  Tensor weight;
};

/// A layer of [batch, time, 12]: norms before attention and the feed-forward net.
struct SequenceBlock : nn::Module {
  SequenceBlock() {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({12})));
    q = register_module("q", nn::Linear(12, 12));
    k = register_module("k", nn::Linear(nn::LinearOptions(12, 12).bias(false)));
    v = register_module("v", nn::Linear(12, 12));
    out = register_module("out", nn::Linear(12, 12));
    drop = register_module("drop", nn::Dropout(0.2));
    norm2 = register_module("norm2", std::make_shared<RMSNorm>(12));
    up = register_module("up", nn::Linear(12, 30));
    down = register_module("down", nn::Linear(30, 12));
  }
  static Tensor heads(const Tensor& x) {
    return x.view({x.size(0), x.size(1), 6, 2}).transpose(1, 2);
  }
  Tensor forward(const Tensor& x) {
    const auto h = norm1->forward(x);
    see("norm1", h);
    const auto a = at::scaled_dot_product_attention(
        heads(q->forward(h)), heads(k->forward(h)), heads(v->forward(h)), {}, 0.0, true);
    const auto o = out->forward(a.transpose(1, 2).reshape(x.sizes()));
    see("out", o);
    const auto y = x + drop->forward(o);
    see("residual", y);
    const auto n = norm2->forward(y);
    see("norm2", n);
    const auto u = up->forward(n);
    see("up", u);
    return y + drop->forward(down->forward(torch::gelu(u)));
  }
  void see(const std::string& name, const Tensor& tensor) {
    if (seen) {
      seen(name, tensor);
    }
  }
  nn::LayerNorm norm1 = nullptr;
  nn::Linear q = nullptr, k = nullptr, v = nullptr, out = nullptr, up = nullptr,
             down = nullptr;
  nn::Dropout drop = nullptr;
  std::shared_ptr<RMSNorm> norm2;
  std::function<void(const std::string&, const Tensor&)> seen;
};

/// Words to the next words.
struct Language : nn::Module {
  Language() {
    torch::manual_seed(6);
    table = register_module("table", nn::Embedding(11, 12));
    places = register_parameter("places", torch::randn({9, 12}));
    first = register_module("first", std::make_shared<SequenceBlock>());
    second = register_module("second", std::make_shared<SequenceBlock>());
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({12})));
    head = register_module("head", nn::Linear(12, 11));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& words) {
    auto x = table->forward(words) + places.slice(0, 0, words.size(1));
    x = second->forward(first->forward(x));
    return head->forward(norm->forward(x));
  }
  nn::Embedding table = nullptr;
  Tensor places;
  std::shared_ptr<SequenceBlock> first, second;
  nn::LayerNorm norm = nullptr;
  nn::Linear head = nullptr;
};

const Plan kLayers{
    {"*.q", "colwise"},   {"*.k", "colwise"}, {"*.v", "colwise"},
    {"*.out", "rowwise"}, {"*.up", "colwise"}, {"*.down", "rowwise"},
    {"*.norm1", "sequence_parallel"}, {"*.norm2", "SequenceParallel"},
    {"*.drop", "sequence_parallel"}, {"norm", "sequence_parallel(sequence_dim=1)"}};

Plan with(Plan plan, const Plan& more) {
  plan.insert(plan.end(), more.begin(), more.end());
  return plan;
}

template <typename Net, typename Forward>
void expect_like_one_device(const AcceleratorOptions& how, const Forward& forward) {
  Accelerator accelerator(how);
  const auto options = optim::AdamWOptions(0.02);
  const auto plain = std::make_shared<Net>();
  optim::AdamW plain_optimizer(plain->parameters(), options);
  const auto expected = losses_of_reading(nullptr, plain, plain_optimizer, 8, forward);
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), options);
  accelerator.prepare(net, optimizer);
  const auto losses = losses_of_reading(&accelerator, net, optimizer, 8, forward);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-9) << i;
  }
  expect_equal(*net, *plain, 1e-9);
}

Tensor forward_of(const std::shared_ptr<Language>& net, const Tensor& words) {
  return net->forward(words);
}

ACCEL_RANK_FUNCTION(sequence_parallel_language) {
  expect_like_one_device<Language>(with_plan(kLayers), forward_of);
}

/// Embeddings of each kind, and a head that is cut.
ACCEL_RANK_FUNCTION(sequence_parallel_tables) {
  for (const char* table : {"colwise", "rowwise"}) {
    expect_like_one_device<Language>(
        with_plan(with(kLayers, {{"table", table}, {"head", table}})), forward_of);
  }
  // The layers by their order.
  expect_like_one_device<Language>(
      with_plan({{"", "sequence_parallel"}, {"*.drop", "sequence_parallel"}}),
      forward_of);
}

TEST(SequenceParallel, TrainsLikeOneDevice) {
  run_and_expect_success("sequence_parallel_language", 3, mesh_of(3));
  run_and_expect_success("sequence_parallel_tables", 2, mesh_of(2));
}

TEST(SequenceParallel, WithDataParallelism) {
  run_and_expect_success("sequence_parallel_language", 4, mesh_of(2));
  run_and_expect_success("sequence_parallel_language", 4, mesh_of(2, 2));
}

/// LibTorch's own layers, whose positions come first.
struct Layers : nn::Module {
  explicit Layers(int64_t encoder = 12, int64_t decoder_width = 10) {
    torch::manual_seed(6);
    table = register_module("table", nn::Embedding(11, 8));
    layer = register_module(
        "layer", nn::TransformerEncoderLayer(
                     nn::TransformerEncoderLayerOptions(8, 2)
                         .dim_feedforward(12)
                         .dropout(0.1)));
    decoder = register_module(
        "decoder", nn::TransformerDecoderLayer(
                       nn::TransformerDecoderLayerOptions(8, 4)
                           .dim_feedforward(decoder_width)
                           .dropout(0)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
    head = register_module("head", nn::Linear(8, 11));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& words) {
    const auto x = table->forward(words.transpose(0, 1));
    const int64_t time = x.size(0);
    const auto mask = torch::full({time, time}, -1e9, torch::kDouble).triu(1);
    const auto y = decoder->forward(layer->forward(x, mask), x.flip(0), mask);
    return head->forward(norm->forward(y).transpose(0, 1));
  }
  nn::Embedding table = nullptr;
  nn::TransformerEncoderLayer layer = nullptr;
  nn::TransformerDecoderLayer decoder = nullptr;
  nn::LayerNorm norm = nullptr;
  nn::Linear head = nullptr;
};

/// Several units: what is smaller than a mebibyte is one.
struct WideLayers : Layers {
  WideLayers() : Layers(9001, 9000) {}
};

Tensor through_layers(const std::shared_ptr<Layers>& net, const Tensor& words) {
  return net->forward(words);
}

ACCEL_RANK_FUNCTION(sequence_parallel_layers) {
  const auto megatron = [](const MegatronLMPlugin& plugin) {
    return AcceleratorOptions().match_single_device(true).megatron_lm_plugin(plugin);
  };
  const auto words = MegatronLMPlugin().tp_degree(2).sequence_parallelism(true);
  expect_like_one_device<Layers>(megatron(words), through_layers);
  for (const bool divided : {false, true}) {
    const auto before = distributed::Recompute::times();
    auto both = words;
    both.recompute_activations(true).use_distributed_optimizer(divided);
    expect_like_one_device<WideLayers>(megatron(both), through_layers);
    EXPECT_GE(distributed::Recompute::times(), before + 4 * 2);
  }
}

TEST(SequenceParallel, MegatronsOptionTrainsLibTorchsLayers) {
  run_and_expect_success("sequence_parallel_layers", 2);
  run_and_expect_success("sequence_parallel_layers", 4);
}

/// The names of the plan are those of a model that holds the block.
struct Holder : nn::Module {
  explicit Holder(std::shared_ptr<SequenceBlock> block) {
    register_module("block", std::move(block));
    register_module("norm", nn::LayerNorm(nn::LayerNormOptions({12})));
  }
};

/// Where everything lies, and how it comes there.
ACCEL_RANK_FUNCTION(sequence_parallel_places) {
  Accelerator accelerator(with_plan(kLayers));
  const auto net = std::make_shared<SequenceBlock>();
  net->to(torch::kDouble);
  net->drop->eval();
  const auto plain = std::make_shared<SequenceBlock>();
  plain->to(torch::kDouble);
  plain->drop->eval();
  {
    torch::NoGradGuard no_grad;
    for (const auto& item : net->named_parameters()) {
      plain->named_parameters()[item.key()].copy_(item.value());
    }
  }
  accelerator.prepare(std::make_shared<Holder>(net));
  std::map<std::string, ad::Placement> seen;
  net->seen = [&](const std::string& name, const Tensor& tensor) {
    seen[name] = ad::is_distributed(tensor) ? ad::placements(tensor.detach())[0]
                                            : ad::Replicate();
  };
  const auto start = torch::randn({1, 6, 12}, torch::kDouble);
  auto x = start.clone().requires_grad_();
  const auto before = ad::traffic();
  const auto y = net->forward(x);
  const auto after = ad::traffic();
  for (const char* name : {"norm1", "out", "residual", "norm2"}) {
    EXPECT_EQ(seen[name], ad::Shard(1)) << name;
  }
  EXPECT_EQ(seen["up"], ad::Shard(2));
  EXPECT_EQ(ad::placements(y.detach()), std::vector<ad::Placement>{ad::Shard(1)});
  // What q, k, v and up take is gathered; what out and down leave is summed in parts.
  const int64_t bytes = start.nbytes();
  EXPECT_EQ(after.gathers - before.gathers, 4);
  EXPECT_EQ(after.reductions - before.reductions, 0);
  EXPECT_EQ(after.exchanges - before.exchanges, 2);
  EXPECT_EQ(after.bytes - before.bytes, 6 * bytes);
  accelerator.backward(y.pow(2).sum());
  EXPECT_EQ(ad::traffic().reductions - after.reductions, 0);

  auto plain_x = start.clone().requires_grad_();
  const auto plain_y = plain->forward(plain_x);
  plain_y.pow(2).sum().backward();
  EXPECT_TRUE(torch::allclose(accelerator.full(y.detach()), plain_y, 1e-9, 1e-12));
  EXPECT_TRUE(
      torch::allclose(accelerator.full(x.grad()), plain_x.grad(), 1e-9, 1e-12));
  for (const auto& item : plain->named_parameters()) {
    const auto& parameter = net->named_parameters()[item.key()];
    const auto& gradient = parameter.grad();
    const bool of_norm = item.key().find("norm") == 0;
    if (of_norm) {
      EXPECT_FALSE(ad::is_distributed(parameter)) << item.key();
      EXPECT_FALSE(ad::is_distributed(gradient)) << item.key();
    }
    EXPECT_TRUE(torch::allclose(
        accelerator.full(gradient), item.value().grad(), 1e-9, 1e-12))
        << item.key();
  }
}

TEST(SequenceParallel, GathersBeforeAndScattersBehind) {
  run_and_expect_success("sequence_parallel_places", 2, mesh_of(2));
}

/// A layer of LibTorch's behind another: one gathering and one scattered sum each for
/// attention and the feed-forward net.
ACCEL_RANK_FUNCTION(sequence_parallel_sends) {
  Accelerator accelerator(with_plan({{"", "sequence_parallel"}}));
  const auto net = std::make_shared<Layers>();
  accelerator.prepare(net);
  const auto x = torch::randn({6, 1, 8}, torch::kDouble);
  const auto y = net->layer->forward(x);
  EXPECT_EQ(ad::placements(y.detach()), std::vector<ad::Placement>{ad::Shard(0)});
  const auto before = ad::traffic();
  const auto z = net->layer->forward(y);
  const auto after = ad::traffic();
  EXPECT_EQ(ad::placements(z.detach()), std::vector<ad::Placement>{ad::Shard(0)});
  EXPECT_EQ(after.gathers - before.gathers, 2);
  EXPECT_EQ(after.exchanges - before.exchanges, 2);
  // Attention asks twice whether queries, keys and values are equal: they are the same
  // tensor, and no other process is asked.
  EXPECT_EQ(after.reductions - before.reductions, 0);
  EXPECT_EQ(after.bytes - before.bytes, 4 * static_cast<int64_t>(x.nbytes()));
}

TEST(SequenceParallel, LibTorchsLayersGatherOnce) {
  run_and_expect_success("sequence_parallel_sends", 2, mesh_of(2));
}

/// A model that is one layer, with the word for the whole model.
template <typename Make>
void expect_alone(const Make& make, const Tensor& input) {
  Accelerator accelerator(with_plan({{"", "sequence_parallel"}}));
  torch::manual_seed(6);
  auto plain = make();
  torch::manual_seed(6);
  auto layer = make();
  plain->to(torch::kDouble);
  layer->to(torch::kDouble);
  accelerator.prepare(layer);
  plain->forward(input).pow(2).sum().backward();
  accelerator.backward(layer->forward(accelerator.distribute(input)).pow(2).sum());
  for (const auto& item : plain->named_parameters()) {
    const auto gradient = layer->named_parameters()[item.key()].grad();
    EXPECT_TRUE(torch::allclose(
        accelerator.full(gradient), item.value().grad(), 1e-9, 1e-12))
        << plain->name() << ' ' << item.key();
  }
}

ACCEL_RANK_FUNCTION(sequence_parallel_alone) {
  torch::manual_seed(4);
  const auto x = torch::randn({2, 5, 12}, torch::kDouble);
  expect_alone([] { return nn::Linear(12, 6); }, x);
  expect_alone([] { return nn::LayerNorm(nn::LayerNormOptions({12})); }, x);
  expect_alone([] { return std::make_shared<RMSNorm>(12); }, x);
  expect_alone([] { return nn::Embedding(11, 4); }, reading(0, 8));
  // No model at all.
  Accelerator accelerator(with_plan({{"", "sequence_parallel"}}));
  auto weight = torch::ones({12}, torch::kDouble).requires_grad_();
  AcceleratedOptimizer<optim::SGD> optimizer(std::vector<Tensor>{weight}, 0.5);
  accelerator.prepare(optimizer);
  accelerator.backward((accelerator.distribute(x) * weight).sum());
  optimizer.step();
  EXPECT_TRUE(torch::allclose(
      accelerator.full(weight.detach()), 1 - 0.5 * x.flatten(0, 1).sum(0), 1e-9, 1e-12));
}

TEST(SequenceParallel, OfAModelThatIsOneLayer) {
  run_and_expect_success("sequence_parallel_alone", 2, mesh_of(2));
}

ACCEL_RANK_FUNCTION(sequence_parallel_bad_plans) {
  const auto says = [&](const Plan& plan, const std::string& part) {
    Accelerator accelerator(with_plan(plan)); // ends in order
    expect_error(
        [&] { accelerator.prepare(std::make_shared<Language>()); }, part);
  };
  says({{"head", "sequence_parallel"}}, "'head': sequence_parallel, but it is a torch::nn::Linear");
  says({{"norm", "sequence_parallel(sequence_dim=0)"},
        {"*.norm1", "sequence_parallel(sequence_dim=1)"}},
       "Activations lie in one dimension");
  expect_refused(
      with_plan({{"norm", "sequence_parallel(2)"}}), "sequence_parallel(sequence_dim=0)");
  expect_refused(
      with_plan({{"head", "colwise(sequence_dim=1)"}}), "only sequence_parallel has");
  expect_refused(
      with_plan({{"head", "gather"}}), "operators bring what they are given");
}

TEST(SequenceParallel, BadPlansAreErrors) {
  run_and_expect_success("sequence_parallel_bad_plans", 2, mesh_of(2));
}

} // namespace
} // namespace accel::test
