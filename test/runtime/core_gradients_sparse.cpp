#include "gradients.h"

#include <cmath>

// Sparse gradients: those of nn::Embedding with sparse(true).

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;

namespace {

constexpr int64_t kWords = 11;
constexpr int64_t kLength = 4;

/// Whose module says that its gradients are sparse, or one of which that is seen
/// from its first gradient only.
enum class Table { kModule, kParameter };
constexpr Table kTables[] = {Table::kModule, Table::kParameter};

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(Table kind = Table::kModule) {
    torch::manual_seed(4);
    if (kind == Table::kModule) {
      weight = register_module(
                   "table",
                   torch::nn::Embedding(
                       torch::nn::EmbeddingOptions(kWords, 3).sparse(true)))
                   ->weight;
    } else {
      weight = register_parameter("table", torch::randn({kWords, 3}));
    }
    head = register_module("head", torch::nn::Linear(3, 2));
    to(torch::kDouble);
  }

  torch::Tensor look(const torch::Tensor& words) const {
    return torch::embedding(
        weight, words, -1, /*scale_grad_by_freq=*/false, /*sparse=*/true);
  }

  torch::Tensor forward(const torch::Tensor& words) {
    return head->forward(look(words).tanh().mean(1));
  }

  torch::Tensor weight;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Words);

/// `count` texts; some words more than once, some never.
torch::Tensor texts(int64_t count, int64_t seed = 0) {
  return (torch::arange(count * kLength) * (seed + 2) + seed)
      .remainder(kWords - 2)
      .view({count, kLength});
}

torch::Tensor mean_loss(Words& net, const torch::Tensor& words) {
  return net->forward(words).pow(2).sum(1).mean();
}

/// Trains with batches of many sizes, down to fewer texts than processes.
template <typename Optimizer, typename Options>
void follows_one_process(Table kind, const Options& options) {
  Accelerator accelerator(kMatch);
  Words net(kind);
  Words reference(kind);
  accel::AcceleratedOptimizer<Optimizer> optimizer(net->parameters(), options);
  Optimizer plain(reference->parameters(), options);
  accelerator.prepare(net, optimizer);
  torch::optim::Optimizer& base = optimizer;
  int64_t i = 0;
  for (const int64_t size : {12, 7, 1, 5, 2, 1, 9}) {
    const auto batch = texts(size, ++i);
    const auto what = std::to_string(size) + " texts, step " + std::to_string(i);
    {
      auto step = accelerator.accumulate(net);
      base.zero_grad(/*set_to_none=*/i % 2 == 0);
      accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
      EXPECT_TRUE(net->weight.grad().is_sparse()) << what;
      optimizer.step();
    }
    plain.zero_grad(i % 2 == 0);
    mean_loss(reference, batch).backward();
    expect_same_gradients(*net, *reference, what);
    plain.step();
    expect_same_parameters(*net, *reference, what);
  }
}

} // namespace

ACCEL_RANK_FUNCTION(sparse_sgd) {
  for (const auto kind : kTables) {
    follows_one_process<torch::optim::SGD>(kind, torch::optim::SGDOptions(0.5));
  }
}

TEST(SparseGradients, SgdFollowsOneProcess) {
  run_all("sparse_sgd");
}

ACCEL_RANK_FUNCTION(sparse_adagrad) {
  follows_one_process<torch::optim::Adagrad>(
      Table::kModule, torch::optim::AdagradOptions(0.3).lr_decay(0.1));
}

TEST(SparseGradients, AdagradFollowsOneProcess) {
  run_all("sparse_adagrad");
}

ACCEL_RANK_FUNCTION(sparse_windows) {
  // Eight micro-batches in windows of three: the last window has two. Some have
  // fewer texts than there are processes; sums, and means over units.
  constexpr int64_t kMicroBatches = 8;
  constexpr int64_t kWindow = 3;
  for (const bool each_batch : {false, true}) {
    Accelerator accelerator(AcceleratorOptions(kMatch)
                                .gradient_accumulation_steps(kWindow)
                                .sync_each_batch(each_batch));
    const auto kind = each_batch ? Table::kModule : Table::kParameter;
    Words net(kind);
    Words reference(kind);
    SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.5));
    torch::optim::SGD plain(reference->parameters(), torch::optim::SGDOptions(0.5));
    accelerator.prepare(net, optimizer);
    torch::optim::Optimizer& base = optimizer;
    in_windows(kMicroBatches, kWindow, [&](const MicroBatch& micro) {
      const auto i = micro.number;
      const auto batch = texts(i % 3 == 0 ? 1 : 4 + i, i);
      // How much each text counts.
      const auto units = torch::arange(batch.size(0), torch::kDouble) + 1;
      const auto weighted = [](auto& model, const auto& x, const auto& u) {
        return (model->forward(x).pow(2).sum(1) * u).sum() / u.sum();
      };
      double norm = 0;
      {
        auto step = accelerator.accumulate(net);
        base.zero_grad();
        const auto [x, u] = accelerator.distribute(std::tuple(batch, units));
        accelerator.backward(
            weighted(net, x, u), u.sum().template item<double>());
        if (micro.last || each_batch) {
          norm = accelerator.clip_grad_norm_(net->parameters(), 0.05);
        } else {
          accelerator.clip_grad_norm_(net->parameters(), 1e-3);
        }
        optimizer.step();
      }
      if (i % kWindow == 0) {
        plain.zero_grad();
      }
      (weighted(reference, batch, units) / micro.length).backward();
      if (micro.last) {
        EXPECT_NEAR(
            norm,
            torch::nn::utils::clip_grad_norm_(reference->parameters(), 0.05),
            1e-12);
        plain.step();
      }
      expect_same_parameters(
          *net, *reference, "micro-step " + std::to_string(i));
    });
  }
}

TEST(SparseGradients, WindowsWeightsAndClipping) {
  run_all("sparse_windows");
}

static void uses_here_and_there(Table kind) {
  Accelerator accelerator; // plain means over the processes
  Words net(kind);
  accelerator.prepare(net);
  const auto rank = accelerator.process_index();
  const auto world = accelerator.num_processes();
  const auto one_hot = [](int64_t word, double value) {
    auto result = torch::zeros({kWords, 3}, torch::kDouble);
    result[word] = value;
    return result;
  };
  const auto use = [&](bool here, int64_t word, double value) {
    auto loss = net->head->weight.sum();
    if (here) {
      loss = loss + net->look(torch::tensor({word})).sum() * value;
    }
    accelerator.backward(loss);
  };
  const auto& gradient = net->weight.grad();
  const auto share = 6 / static_cast<double>(world);
  use(false, 0, 0);
  EXPECT_FALSE(gradient.defined()) << "nobody has used it";
  use(rank == world - 1, 2, 6);
  expect_same(dense(gradient), one_hot(2, share), "first used");
  EXPECT_TRUE(gradient.is_sparse());
  use(rank == 0, 5, 6);
  expect_same(
      dense(gradient), one_hot(2, share) + one_hot(5, share), "accumulated");
  const auto kept = gradient;
  use(false, 0, 0);
  EXPECT_TRUE(gradient.is_same(kept)) << "nobody has used it";
  net->zero_grad();
  use(false, 0, 0);
  EXPECT_FALSE(gradient.defined());
  // Rows of different numbers, and none at all.
  const auto words = torch::arange(rank);
  accelerator.backward(
      net->look(words).sum() + net->head->weight.sum());
  auto expected = torch::zeros({kWords, 3}, torch::kDouble);
  for (int64_t other = 0; other < world; ++other) {
    expected.slice(0, 0, other) += 1.0 / static_cast<double>(world);
  }
  expect_same(dense(gradient), expected, "rows of different numbers");
  EXPECT_TRUE(gradient.is_sparse());
  // Frozen and unfrozen again.
  net->zero_grad();
  net->weight.set_requires_grad(false);
  use(false, 0, 0);
  net->weight.set_requires_grad(true);
  use(true, 3, 2);
  expect_same(dense(gradient), one_hot(3, 2), "unfrozen");
}

ACCEL_RANK_FUNCTION(sparse_unused) {
  for (const auto kind : kTables) {
    uses_here_and_there(kind);
  }
}

TEST(SparseGradients, UnusedOnSomeProcesses) {
  run_all("sparse_unused");
}

/// The layouts differ between the processes and from step to step.
static void changes_layouts(Table kind, bool sparse_first) {
  Accelerator accelerator;
  Words net(kind);
  accelerator.prepare(net);
  const auto rank = accelerator.process_index();
  const auto world = accelerator.num_processes();
  const auto& weight = net->weight;
  const auto step = [&](auto is_dense, auto is_used, const std::string& what) {
    auto expected = torch::zeros({kWords, 3}, torch::kDouble);
    for (int64_t other = 0; other < world; ++other) {
      if (is_used(other)) {
        auto own = torch::zeros_like(expected);
        own[other] = static_cast<double>(other + 1);
        own[9] = 2;
        expected += (is_dense(other) ? own + 0.5 : own) /
            static_cast<double>(world);
      }
    }
    if (is_used(rank)) {
      auto loss = net->look(torch::tensor({rank})).sum() *
              static_cast<double>(rank + 1) +
          net->look(torch::tensor({9})).sum() * 2;
      if (is_dense(rank)) {
        loss = loss + weight.sum() * 0.5;
      }
      accelerator.backward(loss);
    } else {
      accelerator.backward(net->head->weight.sum());
    }
    expect_same(dense(weight.grad()), expected, what);
    net->zero_grad();
  };
  const auto all = [](int64_t) { return true; };
  const auto none = [](int64_t) { return false; };
  const auto first = [](int64_t other) { return other == 0; };
  const auto last = [&](int64_t other) { return other == world - 1; };
  if (sparse_first) {
    step(none, all, "sparse on all");
    step(none, last, "sparse, used by the last");
  }
  step(last, all, "dense on the last");
  step(none, all, "sparse on all, afterwards");
  step(first, all, "dense on the first");
  step(all, first, "dense, used by the first");
  step(all, all, "dense on all");
  step(none, last, "sparse, used by the last, afterwards");
}

ACCEL_RANK_FUNCTION(sparse_and_dense) {
  for (const auto kind : kTables) {
    changes_layouts(kind, false);
    changes_layouts(kind, true);
  }
}

TEST(SparseGradients, DenseOnSomeProcesses) {
  run_all("sparse_and_dense");
}

ACCEL_RANK_FUNCTION(sparse_shapes) {
  // Several tables in one step: half precision, rows with odd numbers of bytes,
  // gradients with two sparse dimensions, and of other ones on other processes.
  Accelerator accelerator;
  const auto rank = accelerator.process_index();
  const auto world = accelerator.num_processes();
  const auto table = [](int64_t columns, at::ScalarType type) {
    torch::nn::Embedding result(
        torch::nn::EmbeddingOptions(6, columns).sparse(true));
    result->to(type);
    return result;
  };
  auto half = table(3, torch::kHalf);
  auto brain = table(1, torch::kBFloat16);
  auto single = table(5, torch::kFloat);
  auto matrix = torch::ones({6, 6}, torch::kDouble).set_requires_grad(true);
  torch::optim::SGD optimizer(
      std::vector<torch::Tensor>{matrix}, torch::optim::SGDOptions(1));
  accelerator.prepare(half, brain, single, optimizer);
  struct Cells : torch::autograd::Function<Cells> {
    static torch::Tensor forward(
        torch::autograd::AutogradContext* context,
        const torch::Tensor& matrix,
        int64_t sparse_dim,
        int64_t row) {
      context->saved_data["sparse_dim"] = sparse_dim;
      context->saved_data["row"] = row;
      return matrix[row].sum();
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context,
        torch::autograd::variable_list) {
      auto gradient = torch::zeros({6, 6}, torch::kDouble);
      gradient[context->saved_data["row"].toInt()] = 1;
      return {
          gradient.to_sparse(context->saved_data["sparse_dim"].toInt()),
          torch::Tensor(),
          torch::Tensor()};
    }
  };
  for (int64_t i = 0; i < 4; ++i) {
    // In the first two steps alike on all, then not.
    const int64_t sparse_dim = i < 2 ? 2 : 1 + (rank + i) % 2;
    const auto words = torch::tensor({rank, rank, int64_t{4}});
    auto loss = half->forward(words).sum().to(torch::kDouble) +
        brain->forward(words).sum() + single->forward(words).sum() +
        Cells::apply(matrix, sparse_dim, rank);
    accelerator.backward(loss);
    auto expected = torch::zeros({6, 1}, torch::kDouble);
    expected.slice(0, 0, world) += 2;
    expected[4] += static_cast<double>(world);
    expected /= static_cast<double>(world);
    for (const auto& embedding : {half, brain, single}) {
      const auto gradient = dense(embedding->weight.grad()).to(torch::kDouble);
      EXPECT_TRUE(torch::allclose(gradient, expected.expand_as(gradient), 1e-2))
          << gradient;
      EXPECT_TRUE(embedding->weight.grad().is_sparse());
    }
    auto rows = torch::zeros({6, 6}, torch::kDouble);
    rows.slice(0, 0, world) += 1.0 / static_cast<double>(world);
    expect_same(dense(matrix.grad()), rows, "step " + std::to_string(i));
    for (auto& tensor :
         {half->weight, brain->weight, single->weight, matrix}) {
      tensor.mutable_grad().reset();
    }
  }
}

TEST(SparseGradients, OfAnyShapeAndType) {
  run_all("sparse_shapes");
}

ACCEL_RANK_FUNCTION(sparse_one_sample) {
  for (const auto kind : kTables) {
    expect_one_sample_counts_once(Words(kind), Words(kind), texts(1));
  }
}

TEST(SparseGradients, OneSampleCountsOnce) {
  run_all("sparse_one_sample");
}

ACCEL_RANK_FUNCTION(sparse_two_models) {
  // Trained in turn, with a hook for what is sent: rows are sent as they are.
  Accelerator accelerator(
      AcceleratorOptions().comm_hook(accel::CommHook::kBF16));
  Words a;
  Words b(Table::kParameter);
  accelerator.prepare(a);
  accelerator.prepare(b);
  const auto rank = accelerator.process_index();
  const auto world = accelerator.num_processes();
  for (int i = 0; i < 4; ++i) {
    auto& trained = i % 2 == 0 ? a : b;
    auto& other = i % 2 == 0 ? b : a;
    const auto third = 1.0 / 3;
    accelerator.backward(
        trained->look(torch::tensor({rank})).sum() * third);
    auto expected = torch::zeros({kWords, 3}, torch::kDouble);
    expected.slice(0, 0, world) += third / static_cast<double>(world);
    expect_same(dense(trained->weight.grad()), expected, "trained");
    EXPECT_FALSE(other->weight.grad().defined());
    trained->zero_grad();
  }
}

TEST(SparseGradients, TwoModelsAndAHook) {
  run_all("sparse_two_models");
}

ACCEL_RANK_FUNCTION(sparse_clipping) {
  Accelerator accelerator(kMatch);
  Words net;
  Words reference;
  accelerator.prepare(net);
  for (const double norm_type : {2.0, 1.0, 3.0, 0.0, HUGE_VAL}) {
    const auto batch = texts(5);
    double actual = 0;
    std::string error;
    {
      auto step = accelerator.accumulate(net);
      accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
      error = error_of([&] {
        actual = accelerator.clip_grad_norm_(net->parameters(), 0.01, norm_type);
      });
    }
    mean_loss(reference, batch).backward();
    double expected = 0;
    // What LibTorch cannot do on one process is the same error on several.
    const auto plain = error_of([&] {
      expected = torch::nn::utils::clip_grad_norm_(
          reference->parameters(), 0.01, norm_type);
    });
    EXPECT_EQ(error == "no error", plain == "no error") << error << plain;
    EXPECT_NEAR(actual, expected, 1e-12);
    expect_same_gradients(*net, *reference, "norm " + std::to_string(norm_type));
    net->zero_grad();
    reference->zero_grad();
  }
}

TEST(SparseGradients, Clipping) {
  run_all("sparse_clipping");
}

/// Gradients of a backward that went past the Accelerator are whole where one device
/// is matched.
ACCEL_RANK_FUNCTION(sparse_unseen_backward) {
  Accelerator accelerator(kMatch);
  Words net, reference;
  SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  SGD plain(reference->parameters(), torch::optim::SGDOptions(0.1));
  accelerator.prepare(net, optimizer);
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      reference->parameters()[i].copy_(net->parameters()[i]);
    }
  }
  const auto batch = texts(4);
  accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
  mean_loss(net, batch).backward();
  mean_loss(net, accelerator.distribute(batch)).backward();
  for (int i = 0; i < 3; ++i) {
    mean_loss(reference, batch).backward();
  }
  optimizer.step();
  plain.step();
  for (size_t i = 0; i < net->parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(
        accelerator.full(net->parameters()[i].detach()), reference->parameters()[i], 1e-9, 1e-9));
  }
}

TEST(SparseGradients, OfABackwardThatNobodySees) {
  run_all("sparse_unseen_backward");
}

ACCEL_RANK_FUNCTION(sparse_mistakes) {
  Accelerator accelerator;
  Words net;
  SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  accelerator.prepare(net, optimizer);
  const auto batch = texts(4);
  accelerator.backward(mean_loss(net, batch)); // installs what sees the next
  // A backward that went past the Accelerator.
  mean_loss(net, batch).backward();
  if (accelerator.use_distributed()) {
    const auto error = error_of([&] { optimizer.step(); });
    EXPECT_TRUE(contains(error, "accelerator.backward(loss) instead")) << error;
  }
  net->zero_grad(/*set_to_none=*/false);
  optimizer.step();
}

TEST(SparseGradients, MistakesAreErrors) {
  run_all("sparse_mistakes");
}

ACCEL_RANK_FUNCTION(sparse_differently) {
  Accelerator accelerator;
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(
      accelerator.process_index() == 1));
  accelerator.prepare(table);
}

TEST(SparseGradients, OtherOptionsOnOtherProcessesAreRefused) {
  for (const auto& result : accel::test::run("sparse_differently", 2)) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(contains(result.error, "sparse options")) << result.error;
  }
}
