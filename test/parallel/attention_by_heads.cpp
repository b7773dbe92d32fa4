// Attention of which each process computes some heads: what is sent, and that it
// is what one device computes.

#include "training.h"

#include "distributed/collectives.h"

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

} // namespace
} // namespace accel::test
