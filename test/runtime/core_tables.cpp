#include "gradients.h"

// Embeddings that do more with a batch than look up: max_norm shortens the rows
// that are looked up, scale_grad_by_freq counts how often they are.

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;
namespace F = torch::nn::functional;

namespace {

constexpr int64_t kRows = 40;

/// A table that is looked into by a function; some words more than once.
struct TextsImpl : torch::nn::Module {
  explicit TextsImpl(bool bags) : bags(bags) {
    torch::manual_seed(4);
    table = register_parameter(
        "table", torch::randn({kRows, 3}, torch::kDouble));
    head = register_module("head", torch::nn::Linear(3, 2));
    to(torch::kDouble);
  }

  torch::Tensor forward(const torch::Tensor& words) {
    const auto looked_up = bags
        ? F::embedding_bag(
              words,
              table,
              F::EmbeddingBagFuncOptions().max_norm(0.7).mode(torch::kSum))
        : F::embedding(
              words, table, F::EmbeddingFuncOptions().max_norm(0.7).norm_type(1))
              .sum(1);
    return head->forward(looked_up.tanh());
  }

  bool bags;
  torch::Tensor table;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Texts);

/// Each text has words of its own.
torch::Tensor texts_of_rows(int64_t count, int64_t seed) {
  return (torch::arange(count * 3) + 5 * seed).remainder(kRows).view({count, 3});
}

template <typename Net>
torch::Tensor mean_loss(Net& net, const torch::Tensor& words) {
  return net->forward(words).pow(2).sum(1).mean();
}

torch::nn::Sequential shortened() {
  torch::manual_seed(4);
  torch::nn::Sequential net(
      torch::nn::EmbeddingBag(
          torch::nn::EmbeddingBagOptions(kRows, 3).max_norm(0.7)),
      torch::nn::Linear(3, 2));
  net->to(torch::kDouble);
  return net;
}

/// Down to fewer texts than processes.
template <typename Net>
void follows_one_process(Accelerator& accelerator, Net net, Net reference) {
  SGD optimizer(net->parameters(), kSgd);
  torch::optim::SGD plain(reference->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  int64_t i = 0;
  for (const int64_t size : {9, 5, 1, 2, 7}) {
    const auto batch = texts_of_rows(size, ++i);
    {
      auto step = accelerator.accumulate(net);
      optimizer.zero_grad();
      accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
      optimizer.step();
    }
    plain.zero_grad();
    mean_loss(reference, batch).backward();
    expect_same_gradients(*net, *reference, "step " + std::to_string(i));
    plain.step();
    expect_same_parameters(*net, *reference, "step " + std::to_string(i));
  }
  // Not in a step: all processes look up the same.
  const torch::NoGradGuard no_grad;
  expect_same(
      net->forward(texts_of_rows(4, 9)), reference->forward(texts_of_rows(4, 9)), "whole");
  expect_same_parameters(*net, *reference, "whole");
}

} // namespace

ACCEL_RANK_FUNCTION(shortened_rows) {
  Accelerator accelerator(kMatch);
  for (const bool bags : {false, true}) {
    follows_one_process(accelerator, Texts(bags), Texts(bags));
  }
  follows_one_process(accelerator, shortened(), shortened());
}

TEST(Tables, ShortenedAsOneProcessDoes) {
  run_all("shortened_rows");
}

// Where every process has batches of its own, tables would part.
ACCEL_RANK_FUNCTION(shortened_apart) {
  Accelerator accelerator;
  auto module = shortened();
  Texts net(false);
  // What is not trained, each may shorten as it likes.
  auto frozen = torch::ones({5, 2});
  F::embedding(
      torch::tensor({1}), frozen, F::EmbeddingFuncOptions().max_norm(0.5));
  EXPECT_NEAR(frozen[1].norm().item<double>(), 0.5, 1e-6);
  EXPECT_GT(frozen[2].norm().item<double>(), 1);
  if (!accelerator.use_distributed()) {
    accelerator.prepare(module, net);
    mean_loss(net, texts_of_rows(2, 0));
    return;
  }
  auto error = error_of([&] { accelerator.prepare(module); });
  EXPECT_TRUE(contains(error, "'model.0' has max_norm")) << error;
  accelerator.prepare(net);
  const auto before = net->table.detach().clone();
  error = error_of([&] { mean_loss(net, texts_of_rows(2, 0)); });
  EXPECT_TRUE(contains(error, "max_norm out")) << error;
  EXPECT_TRUE(torch::equal(net->table, before));
}

TEST(Tables, ShortenedApartIsAnError) {
  run_all("shortened_apart");
}

namespace {

/// A table of which each row's gradient is divided by how often it was looked up.
struct CountedImpl : torch::nn::Module {
  explicit CountedImpl(bool bags) : bags(bags) {
    torch::manual_seed(4);
    table = register_parameter(
        "table", torch::randn({kRows, 3}, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& words) {
    return bags
        ? F::embedding_bag(
              words,
              table,
              F::EmbeddingBagFuncOptions().scale_grad_by_freq(true).mode(
                  torch::kSum))
        : F::embedding(
              words, table, F::EmbeddingFuncOptions().scale_grad_by_freq(true))
              .sum(1);
  }
  bool bags;
  torch::Tensor table;
};
TORCH_MODULE(Counted);

} // namespace

// Words are counted over the whole batch.
ACCEL_RANK_FUNCTION(scaled_by_counts) {
  Accelerator accelerator(kMatch);
  for (const bool bags : {false, true}) {
    Counted net(bags);
    Counted reference(bags);
    accelerator.prepare(net);
    for (const int64_t size : {7, 3, 1}) {
      // Words that several processes look up, and some twice.
      const auto words =
          (torch::arange(size * 3) * 2).remainder(5).view({size, 3});
      net->zero_grad();
      reference->zero_grad();
      auto step = accelerator.accumulate(net);
      accelerator.backward(mean_loss(net, accelerator.distribute(words)));
      mean_loss(reference, words).backward();
      expect_same_gradients(*net, *reference, std::to_string(size) + " texts");
    }
  }
}

TEST(Tables, CountWordsAsOneProcessDoes) {
  run_all("scaled_by_counts");
}
