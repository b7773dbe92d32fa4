// Attention of which each process computes some heads: what is sent, that it is what
// one device computes, and its checkpoints.

#include "training.h"

#include "build_paths.h"

#include "distributed/collectives.h"

#include <cstdlib>
#include <utility>
#include <vector>

namespace accel::test {
namespace {

constexpr int64_t kFeatures = 8;

AcceleratorOptions by_heads() {
  return AcceleratorOptions().match_single_device(true).parallelism_config(
      ParallelismConfig().tp_size(2));
}

/// Attention and LibTorch's layers around it, of [time, batch, features].
struct Heads : nn::Module {
  Heads() {
    torch::manual_seed(3);
    attention = register_module(
        "attention",
        nn::MultiheadAttention(nn::MultiheadAttentionOptions(kFeatures, 4)));
    encoder = register_module(
        "encoder", nn::TransformerEncoderLayer(
                       nn::TransformerEncoderLayerOptions(kFeatures, 2)
                           .dim_feedforward(12)
                           .dropout(0)));
    decoder = register_module(
        "decoder", nn::TransformerDecoderLayer(
                       nn::TransformerDecoderLayerOptions(kFeatures, 4)
                           .dim_feedforward(12)
                           .dropout(0)));
    to(torch::kDouble);
  }
  /// What is computed in a number of blocks, each of which is summed once.
  Tensor forward(int which, const Tensor& x, const Tensor& memory) {
    const auto mask = torch::full({5, 5}, -1e9, torch::kDouble).triu(1);
    switch (which) {
      case 0:
        return std::get<0>(attention->forward(x, x, x, {}, true, mask));
      case 1:
        return std::get<0>(attention->forward(x, memory, memory, {}, false));
      case 2:
        return encoder->forward(x, mask);
      default:
        return decoder->forward(x, memory, mask);
    }
  }
  nn::MultiheadAttention attention = nullptr;
  nn::TransformerEncoderLayer encoder = nullptr;
  nn::TransformerDecoderLayer decoder = nullptr;
};

ad::Traffic since(const ad::Traffic& before) {
  auto now = ad::traffic();
  now.gathers -= before.gathers;
  now.reductions -= before.reductions;
  now.exchanges -= before.exchanges;
  now.bytes -= before.bytes;
  return now;
}

ACCEL_RANK_FUNCTION(attention_by_heads) {
  Accelerator accelerator(by_heads());
  const auto plain = std::make_shared<Heads>();
  const auto net = std::make_shared<Heads>();
  accelerator.prepare(net);
  const auto memory = torch::randn({6, 3, kFeatures}, torch::kDouble);
  const auto start = torch::randn({5, 3, kFeatures}, torch::kDouble);
  const auto weight = torch::randn({5, 3, kFeatures}, torch::kDouble);
  const int64_t bytes = start.nbytes(); // of a whole activation
  // Attention, likewise to a memory, with a feed-forward net, and all three.
  const int64_t blocks[] = {1, 1, 2, 3};
  for (int which = 0; which < 4; ++which) {
    const auto x = start.clone().requires_grad_();
    auto before = ad::traffic();
    const auto y = net->forward(which, x, memory);
    const auto forward = since(before);
    EXPECT_EQ(forward.gathers, 0) << which;
    EXPECT_EQ(forward.exchanges, 0) << which;
    EXPECT_EQ(forward.reductions, blocks[which]) << which;
    EXPECT_EQ(forward.bytes, blocks[which] * bytes) << which;
    before = ad::traffic();
    accelerator.backward((y * weight).sum());
    const auto backward = since(before);
    EXPECT_EQ(backward.gathers, 0) << which;
    EXPECT_EQ(backward.exchanges, 0) << which;
    EXPECT_EQ(backward.bytes, backward.reductions * bytes) << which;
    EXPECT_LE(backward.reductions, blocks[which]) << which;

    const auto plain_x = start.clone().requires_grad_();
    const auto plain_y = plain->forward(which, plain_x, memory);
    (plain_y * weight).sum().backward();
    EXPECT_TRUE(torch::allclose(accelerator.full(y.detach()), plain_y, 1e-9, 1e-12));
    EXPECT_TRUE(
        torch::allclose(accelerator.full(x.grad()), plain_x.grad(), 1e-9, 1e-12));
  }
  for (const auto& item : plain->named_parameters()) {
    const auto gradient = net->named_parameters()[item.key()].grad();
    EXPECT_TRUE(torch::allclose(
        accelerator.full(gradient), item.value().grad(), 1e-9, 1e-12))
        << item.key();
  }
}

TEST(AttentionByHeads, SendsOneSumForEachBlock) {
  run_and_expect_success("attention_by_heads", 2);
}

/// Trains where nothing is said in HEADS_LOAD, and saves as "one"; else loads one
/// checkpoint after the other and saves it under another name: "one:two,two:three".
ACCEL_RANK_FUNCTION(heads_checkpoint) {
  const auto folder = std::string(std::getenv("SHARDED_FOLDER")) + "/";
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const auto net = std::make_shared<Heads>();
  AcceleratedOptimizer<optim::Adam> optimizer(net->parameters(), 0.01);
  accelerator.prepare(net, optimizer);
  std::istringstream loads(std::getenv("HEADS_LOAD"));
  std::string names;
  if (loads.peek() == std::istringstream::traits_type::eof()) {
    const auto x = torch::randn({5, 3, kFeatures}, torch::kDouble);
    for (int which = 0; which < 4; ++which) {
      accelerator.backward(net->forward(which, x, x.flip(0)).pow(2).sum());
    }
    optimizer.step();
    accelerator.save_state(folder + "one");
  }
  while (std::getline(loads, names, ',')) {
    const auto colon = names.find(':');
    accelerator.load_state(folder + names.substr(0, colon));
    const auto saved = checkpoint::load_safetensors(folder + "one/model.safetensors");
    for (const auto& item : net->named_parameters()) {
      EXPECT_TRUE(torch::equal(
          ad::full_tensor(item.value().detach()), saved[item.key()])) << item.key();
    }
    accelerator.save_state(folder + names.substr(colon + 1));
  }
}

TEST(AttentionByHeads, IsSavedInPartsOfQueriesKeysAndValues) {
  const Folder folder;
  const auto go = [&](int processes, int shard, int tensor, const char* loads) {
    run_and_expect_success(
        "heads_checkpoint", processes,
        folder.options(
            {{"HEADS_LOAD", loads},
             {"FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"},
             {"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
             {"PARALLELISM_CONFIG_DP_SHARD_SIZE", std::to_string(shard)},
             {"PARALLELISM_CONFIG_TP_SIZE", std::to_string(tensor)}}));
  };
  const auto file = [&](const std::string& name) { return folder.path + "/" + name; };
  go(1, 1, 1, "");
  go(2, 1, 2, "one:tensor,tensor:again");
  go(3, 3, 1, "tensor:rows");
  go(4, 2, 2, "rows:both");
  go(1, 1, 1, "tensor:back,both:last");
  // Each process has its heads, of the optimizer's state as well.
  const std::string in_proj = "attention.in_proj_weight";
  const auto whole = checkpoint::load_safetensors(file("one/model.safetensors"))[in_proj];
  for (const int rank : {0, 1}) {
    const auto name = ".process_" + std::to_string(rank) + ".safetensors";
    const auto part =
        checkpoint::load_safetensors(file("tensor/model" + name))[in_proj];
    EXPECT_TRUE(torch::equal(
        part, torch::cat({whole.slice(0, 4 * rank, 4 * rank + 4),
                          whole.slice(0, 8 + 4 * rank, 12 + 4 * rank),
                          whole.slice(0, 16 + 4 * rank, 20 + 4 * rank)})));
    for (const char* kind : {"model", "optimizer"}) {
      EXPECT_EQ(bytes_of(file(std::string("tensor/") + kind + name)),
                bytes_of(file(std::string("again/") + kind + name)));
    }
  }
  for (const char* other : {"back", "last"}) {
    for (const char* name : {"/model.safetensors", "/optimizer.safetensors"}) {
      EXPECT_EQ(bytes_of(file("one") + name), bytes_of(file(other) + name)) << other;
    }
  }
  for (const char* from : {"tensor", "rows", "both"}) {
    const auto to = file(std::string(from) + ".safetensors");
    const auto command = std::string(build_paths::kAccel) + " merge-weights " +
        file(from) + " " + to;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_EQ(bytes_of(to), bytes_of(file("one/model.safetensors"))) << from;
  }
}

} // namespace
} // namespace accel::test
