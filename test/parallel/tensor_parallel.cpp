// Tensor parallelism: layers in parts, by plans and by the order of the modules,
// against LibTorch alone.

#include "training.h"

#include <algorithm>
#include <functional>
#include <iostream>

namespace accel::test {
namespace {

using Plan = TorchTensorParallelPlugin::Plan;

/// As TP and DP_SHARD say; the rest of the processes are groups.
AcceleratorOptions tensor_parallel(Plan plan = {}) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? int64_t{1} : std::stol(value);
  };
  const int64_t tp = variable("TP_OF_RUN");
  const int64_t shard = variable("SHARD_OF_RUN");
  return AcceleratorOptions()
      .match_single_device(true)
      .torch_tp_plugin(TorchTensorParallelPlugin().plan(std::move(plan)))
      .parallelism_config(
          ParallelismConfig().tp_size(tp).dp_shard_size(shard).dp_replicate_size(
              variable("WORLD_SIZE") / tp / shard));
}

RunOptions mesh_of(int tp, int shard = 1) {
  RunOptions options;
  options.environment["TP_OF_RUN"] = std::to_string(tp);
  options.environment["SHARD_OF_RUN"] = std::to_string(shard);
  options.timeout = std::chrono::seconds(240); // a machine with other work
  return options;
}

/// Words to a class for each, through attention, a transformer's layers and a
/// feed-forward net.
struct Words : nn::Module {
  Words() {
    torch::manual_seed(3);
    table = register_module("table", nn::Embedding(11, 8));
    attention = register_module(
        "attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 4)));
    layer = register_module(
        "layer", nn::TransformerEncoderLayer(
                     nn::TransformerEncoderLayerOptions(8, 4)
                         .dim_feedforward(12)
                         .dropout(0.2)));
    decoder = register_module(
        "decoder", nn::TransformerDecoderLayer(
                       nn::TransformerDecoderLayerOptions(8, 2)
                           .dim_feedforward(10)
                           .dropout(0)));
    up = register_module("up", nn::Linear(8, 13));
    down = register_module("down", nn::Linear(13, 8));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
    head = register_module("head", nn::Linear(nn::LinearOptions(8, 11).bias(false)));
    to(torch::kDouble);
  }
  /// [time, batch] to [time * batch, 11].
  Tensor forward(const Tensor& words) {
    auto x = table->forward(words);
    const int64_t time = words.size(0);
    const auto mask =
        torch::full({time, time}, -1e9, torch::kDouble).triu(1);
    x = x + std::get<0>(attention->forward(x, x, x, {}, false, mask));
    x = layer->forward(x, mask);
    x = decoder->forward(x, table->forward(words.flip(0)));
    x = norm->forward(x + down->forward(torch::gelu(up->forward(x))));
    return head->forward(x).flatten(0, 1);
  }
  nn::Embedding table = nullptr;
  nn::MultiheadAttention attention = nullptr;
  nn::TransformerEncoderLayer layer = nullptr;
  nn::TransformerDecoderLayer decoder = nullptr;
  nn::Linear up = nullptr, down = nullptr, head = nullptr;
  nn::LayerNorm norm = nullptr;
};

/// Losses of three steps; `run` is null in the plain program.
std::vector<double> train_words(
    Accelerator* run,
    const std::shared_ptr<Words>& net,
    optim::Optimizer& optimizer) {
  std::vector<double> losses;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t n = i % 3 == 1 ? 3 : 6;
    auto words = (torch::arange(5 * n) * (i + 2)).remainder(11).view({5, n});
    auto next = (words + 1).remainder(11);
    if (run != nullptr) {
      words = run->distribute(words, 1);
      next = run->distribute(next, 1);
    }
    losses.push_back(clipped_step(run, *net, optimizer, 0.7, [&] {
      return torch::cross_entropy_loss(net->forward(words), next.flatten());
    }));
  }
  return losses;
}

void expect_words_like_one_device(const Plan& plan) {
  Accelerator accelerator(tensor_parallel(plan));
  const auto options = optim::AdamWOptions(0.02);
  const auto plain = std::make_shared<Words>();
  optim::AdamW plain_optimizer(plain->parameters(), options);
  const auto expected = train_words(nullptr, plain, plain_optimizer);
  const auto net = std::make_shared<Words>();
  AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), options);
  accelerator.prepare(net, optimizer);
  const auto losses = train_words(&accelerator, net, optimizer);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-9) << i;
  }
  expect_equal(*net, *plain, 1e-9);
}

ACCEL_RANK_FUNCTION(tensor_parallel_words_by_order) {
  expect_words_like_one_device({});
}

ACCEL_RANK_FUNCTION(tensor_parallel_words) {
  expect_words_like_one_device({});
  expect_words_like_one_device(
      {{"up", "colwise"}, {"down", "rowwise"}, {"*.linear1", "ColwiseParallel"},
       {"*.linear2", "RowwiseParallel"}, {"head", "rowwise"}, {"table", "rowwise"}});
}

TEST(TensorParallel, TransformersTrainLikeOneDevice) {
  run_and_expect_success("tensor_parallel_words", 2, mesh_of(2));
  run_and_expect_success("tensor_parallel_words", 3, mesh_of(3)); // heads stay whole
}

TEST(TensorParallel, WithDataParallelism) {
  run_and_expect_success("tensor_parallel_words_by_order", 4, mesh_of(2));
  run_and_expect_success("tensor_parallel_words_by_order", 4, mesh_of(2, 2));
}

/// The zoo's odd model: a table that is used twice, batch norm, one row.
ACCEL_RANK_FUNCTION(tensor_parallel_net) {
  for (const Plan& plan : {Plan{}, Plan{{"first", "rowwise"}, {"table", "rowwise"}}}) {
    Accelerator accelerator(tensor_parallel(plan));
    const auto plain = std::make_shared<Net>();
    optim::SGD plain_optimizer(
        plain->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    const auto net = std::make_shared<Net>();
    AcceleratedOptimizer<optim::SGD> optimizer(
        net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    accelerator.prepare(net, optimizer);
    expect_equal(*net, *plain, 0); // bit for bit
    for (int64_t i = 0; i < 6; ++i) {
      const double expected = step(nullptr, plain, plain_optimizer, i);
      EXPECT_NEAR(step(&accelerator, net, optimizer, i), expected, 1e-9);
      torch::NoGradGuard no_grad;
      for (auto* both : {&net, &plain}) {
        (*both)->first->weight[2] = 0.25; // whole until the next step
        (*both)->table->weight.mul_(0.99);
      }
    }
    expect_equal(*net, *plain, 1e-9);
  }
}

TEST(TensorParallel, ProgramsReadAndWriteParameters) {
  run_and_expect_success("tensor_parallel_net", 2, mesh_of(2));
  run_and_expect_success("tensor_parallel_net", 4, mesh_of(2, 2));
}

/// `Net net;`, not in a shared_ptr.
ACCEL_RANK_FUNCTION(tensor_parallel_on_the_stack) {
  for (const Plan& plan : {Plan{}, Plan{{"first", "rowwise"}}}) {
    Accelerator accelerator(tensor_parallel(plan));
    Net plain;
    optim::SGD plain_optimizer(plain.parameters(), 0.1);
    Net net;
    AcceleratedOptimizer<optim::SGD> optimizer(net.parameters(), 0.1);
    accelerator.prepare(net, optimizer);
    EXPECT_TRUE(ad::placements(net.first->weight)[0].is_shard());
    // Who does not own it.
    const std::shared_ptr<Net> here(&net, [](Net*) {});
    const std::shared_ptr<Net> beside(&plain, [](Net*) {});
    for (int64_t i = 0; i < 3; ++i) {
      const double expected = step(nullptr, beside, plain_optimizer, i);
      EXPECT_NEAR(step(&accelerator, here, optimizer, i), expected, 1e-9);
    }
    expect_equal(net, plain, 1e-9);
  }
}

TEST(TensorParallel, ModelsOnTheStack) {
  run_and_expect_success("tensor_parallel_on_the_stack", 2, mesh_of(2));
}

/// What each process has of each layer.
ACCEL_RANK_FUNCTION(tensor_parallel_places) {
  Accelerator accelerator(tensor_parallel());
  const auto mesh = accelerator.device_mesh();
  EXPECT_EQ(accelerator.tensor_parallel_rank(), accelerator.process_index() % 2);
  const auto net = std::make_shared<Words>();
  AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), 0.02);
  accelerator.prepare(net, optimizer);
  train_words(&accelerator, net, optimizer);
  // Of three projections in one each is cut.
  const auto three = ad::Shard(
      0, c10::make_intrusive<ad::CutPoints>(std::vector<int64_t>{0, 4, 8}, 3));
  const auto rows = ad::Shard(0), columns = ad::Shard(1);
  std::map<std::string, ad::Placement> cut{
      {"table.weight", columns},
      {"layer.linear1.weight", rows},
      {"layer.linear1.bias", rows},
      {"layer.linear2.weight", columns},
      {"decoder.linear1.weight", rows},
      {"decoder.linear1.bias", rows},
      {"decoder.linear2.weight", columns},
      {"up.weight", rows},
      {"up.bias", rows},
      {"down.weight", columns},
      {"head.weight", rows}};
  for (const char* name :
       {"attention", "layer.self_attn", "decoder.self_attn",
        "decoder.multihead_attn"}) {
    cut[name + std::string(".in_proj_weight")] = three;
    cut[name + std::string(".in_proj_bias")] = three;
    cut[name + std::string(".out_proj.weight")] = columns;
  }
  const bool both = mesh.ndim() == 2; // dp_shard 2, tp 2
  for (const auto& item : net->named_parameters()) {
    const auto found = cut.find(item.key());
    const auto& parameter = item.value();
    auto& state = static_cast<optim::AdamWParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
    for (const auto& tensor :
         {parameter.detach(), parameter.grad(), state.exp_avg()}) {
      const auto places = ad::is_distributed(tensor)
          ? ad::placements(tensor)
          : std::vector<ad::Placement>();
      if (found == cut.end()) {
        EXPECT_LE(places.size(), both ? 1u : 0u) << item.key();
        continue;
      }
      ASSERT_FALSE(places.empty()) << item.key();
      EXPECT_EQ(places.back(), found->second) << item.key();
      EXPECT_EQ(places.size(), both && tensor.dim() == 2 ? 2u : 1u) << item.key();
      const auto local = ad::to_local(tensor);
      EXPECT_LE(
          local.numel(),
          (tensor.numel() + 14) / (both && tensor.dim() == 2 ? 4 : 2) + 8)
          << item.key();
    }
  }
}

TEST(TensorParallel, EachProcessHoldsItsPart) {
  run_and_expect_success("tensor_parallel_places", 2, mesh_of(2));
  run_and_expect_success("tensor_parallel_places", 4, mesh_of(2, 2));
}

/// A layer's product is computed in parts, without gathering weights.
ACCEL_RANK_FUNCTION(tensor_parallel_prints) {
  Accelerator accelerator(tensor_parallel());
  nn::Sequential net(nn::Linear(4, 6), nn::ReLU(), nn::Linear(6, 2));
  accelerator.prepare(net);
  const auto weight = net->parameters()[0];
  const auto hidden =
      torch::linear(torch::ones({3, 4}), weight, net->parameters()[1]);
  EXPECT_EQ(ad::placements(hidden.detach())[0], ad::Shard(1));
  const auto out = torch::linear(torch::relu(hidden), net->parameters()[2]);
  EXPECT_EQ(ad::placements(out.detach())[0], ad::Partial());
}

TEST(TensorParallel, PrintsItsPlan) {
  auto options = mesh_of(2);
  options.environment["ACCEL_PRINT_PLAN"] = "1";
  const auto results = run_and_expect_success("tensor_parallel_prints", 2, options);
  for (const char* part :
       {"tensor parallelism on 2 processes (made from the model)",
        "  0.weight [6, 4] S(0)\n  0.bias [6] S(0)\n  2.weight [2, 6] S(1)\n"}) {
    EXPECT_NE(results[0].error.find(part), std::string::npos) << results[0].error;
  }
  EXPECT_EQ(results[1].error.find("0.weight"), std::string::npos);
}

ACCEL_RANK_FUNCTION(tensor_parallel_checkpoint) {
  const std::string folder = std::getenv("SHARDED_FOLDER") + std::string("/");
  const std::string from = std::getenv("TP_FROM");
  Accelerator accelerator(tensor_parallel());
  const auto net = std::make_shared<Words>();
  AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), 0.02);
  accelerator.prepare(net, optimizer);
  if (!from.empty()) {
    accelerator.load_state(folder + from);
  }
  const auto losses = train_words(&accelerator, net, optimizer);
  accelerator.save_state(folder + std::getenv("TP_TO"));
  if (accelerator.is_main_process()) {
    for (const double loss : losses) {
      char text[40];
      std::snprintf(text, sizeof text, "%.9f\n", loss);
      std::cout << text;
    }
  }
}

TEST(TensorParallel, CheckpointsFitAnyMesh) {
  const Folder folder;
  const auto go = [&](int processes, int tp, int shard, const char* from,
                      const char* to) {
    return run_and_expect_success(
               "tensor_parallel_checkpoint", processes,
               [&] {
                 auto options = mesh_of(tp, shard);
                 options.environment["SHARDED_FOLDER"] = folder.path;
                 options.environment["TP_FROM"] = from;
                 options.environment["TP_TO"] = to;
                 if (std::string(to) == "parts") {
                   options.environment["FSDP_STATE_DICT_TYPE"] = "SHARDED_STATE_DICT";
                 }
                 return options;
               }())
        .at(0)
        .output;
  };
  const auto first = go(1, 1, 1, "", "plain");
  const auto rest = go(1, 1, 1, "plain", "plain_end");
  EXPECT_EQ(go(2, 2, 1, "", "two"), first);
  EXPECT_EQ(go(1, 1, 1, "two", "a"), rest);
  EXPECT_EQ(go(4, 2, 2, "two", "b"), rest);
  EXPECT_EQ(go(3, 1, 3, "two", "c"), rest);
  EXPECT_EQ(go(2, 2, 1, "", "parts"), first);
  EXPECT_EQ(go(1, 1, 1, "parts", "d"), rest);
  EXPECT_EQ(go(2, 2, 1, "parts", "e"), rest);
}

// ---- What cannot be.

ACCEL_RANK_FUNCTION(tensor_parallel_bad_plans) {
  const auto says = [&](const Plan& plan, const std::string& part) {
    Accelerator accelerator(tensor_parallel(plan)); // ends in order
    expect_error(
        [&] {
          const auto net = std::make_shared<Words>();
          AcceleratedOptimizer<optim::AdamW> optimizer(net->parameters(), 0.02);
          accelerator.prepare(net, optimizer);
          train_words(&accelerator, net, optimizer);
        },
        part);
  };
  const auto refuses = [&](const Plan& plan, const std::string& part) {
    expect_refused(tensor_parallel(plan), part);
  };
  refuses({{"up", "columnwise"}}, "up: 'columnwise', which is none of colwise");
  says({{"upp", "colwise"}}, "names 'upp', but no module of a prepared model");
  says({{"norm", "colwise"}}, "names 'norm', a torch::nn::LayerNormImpl");
  says({{"attention", "rowwise"}}, "whose heads are shared out");
  says({{"decoder.self_attn", "colwise"}}, "2 heads cannot be shared equally by 3");
}

TEST(TensorParallel, BadPlansAreOneErrorOnEveryProcess) {
  run_and_expect_success("tensor_parallel_bad_plans", 3, mesh_of(3));
}

TEST(TensorParallel, RefusesContradictions) {
  expect_refused(
      AcceleratorOptions().torch_tp_plugin(TorchTensorParallelPlugin().tp_size(2)),
      "match_single_device is false");
  const auto match = AcceleratorOptions().match_single_device(true).torch_tp_plugin(
      TorchTensorParallelPlugin().tp_size(2));
  EXPECT_EQ(resolve(match).parallelism->tp, 2);
  auto other = match;
  other.parallelism_config(ParallelismConfig().tp_size(3));
  expect_refused(other, "tp_size of torch_tp_plugin is 2, and that of parallelism_config 3");
  ::setenv("ACCEL_TP_PLAN", "up", 1);
  expect_refused(match, "must be a list of name=word");
  ::setenv("ACCEL_TP_PLAN", "up=colwise,down=rowwise", 1);
  EXPECT_EQ(
      resolve(match).tp_plan, (Plan{{"up", "colwise"}, {"down", "rowwise"}}));
  ::unsetenv("ACCEL_TP_PLAN");
}

} // namespace
} // namespace accel::test
