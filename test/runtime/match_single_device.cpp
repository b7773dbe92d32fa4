// `match_single_device`: training on distributed batches against the same program
// with LibTorch alone in one process, in float64: the loss of every step, and all
// parameters and buffers after it. Batches of 5 of 17 samples: unequal parts, and
// a last batch of 2, fewer than three processes.

#include "data_sets.h"
#include "expectations.h"
#include "multiprocess.h"

#include <accel/accelerator.h>
#include <accel/data/data_loader.h>
#include <accel/distributed/tensor.h>
#include <accel/optim/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::test::generator_state;
using accel::test::run_all;
using torch::Tensor;
using torch::data::DataLoaderOptions;
using torch::data::samplers::SequentialSampler;
namespace F = torch::nn::functional;

namespace {

constexpr int64_t kColumns = 12;
constexpr int64_t kClasses = 5;

/// Sample i is a row of 12 numbers and one of 5 classes.
struct Samples : torch::data::datasets::Dataset<Samples> {
  explicit Samples(size_t size, bool augments)
      : count(size), augments(augments) {}
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    auto data = torch::sin(
        torch::arange(kColumns, torch::kDouble) * (0.7 + 0.3 * i) + i);
    // Random numbers for some samples only, and so on some processes.
    if (augments && index % 3 == 0) {
      data = data + 0.1 * torch::randn({kColumns}, torch::kDouble);
    }
    return {data, torch::tensor(i * 7 % kClasses)};
  }
  std::optional<size_t> size() const override {
    return count;
  }
  size_t count;
  bool augments;
};

/// Draws in `next`, for every batch.
struct WithReplacement : torch::data::samplers::Sampler<> {
  explicit WithReplacement(size_t size) : size(size) {}
  void reset(std::optional<size_t> = std::nullopt) override {
    given = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    std::vector<size_t> indices;
    for (; indices.size() < batch_size && given < size; ++given) {
      indices.push_back(
          torch::randint(static_cast<int64_t>(size), {1}).item<int64_t>());
    }
    return indices.empty() ? std::nullopt : std::make_optional(indices);
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  size_t size;
  size_t given = 0;
};

struct Model : torch::nn::Module {
  virtual Tensor loss(const Tensor& x, const Tensor& y) = 0;
};
using MakeModel = std::function<std::shared_ptr<Model>()>;

/// What is trained by default: layers and a loss that are given.
struct Layers : Model {
  using LossOf = std::function<
      Tensor(torch::nn::Sequential& net, const Tensor& x, const Tensor& y)>;
  Layers(torch::nn::Sequential layers, LossOf loss)
      : net(register_module("net", std::move(layers))),
        loss_of(std::move(loss)) {
    to(torch::kDouble);
  }
  Tensor loss(const Tensor& x, const Tensor& y) override {
    return loss_of(net, x, y);
  }
  torch::nn::Sequential net;
  LossOf loss_of;
};

template <typename... Modules>
MakeModel layers(const Layers::LossOf& loss, const Modules&... modules) {
  return [=]() -> std::shared_ptr<Model> {
    torch::nn::Sequential net;
    (net->push_back(modules()), ...);
    return std::make_shared<Layers>(net, loss);
  };
}

auto linear(int64_t from, int64_t to) {
  return [=] { return torch::nn::Linear(from, to); };
}
auto tanh_layer() {
  return [] { return torch::nn::Tanh(); };
}

Tensor cross_entropy(torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
  return F::cross_entropy(net->forward(x), y);
}

struct Training {
  int64_t size = 17;
  int64_t batch = 5;
  int64_t window = 1;
  double clip = 0;
  double momentum = 0.9;
  size_t workers = 0;
  bool augments = false;
  bool with_replacement = false;
};

struct Step {
  double loss;
  double norm;
  std::vector<std::pair<std::string, Tensor>> tensors;
};

template <typename Optimizer, typename Loader>
std::vector<Step> train(
    const std::shared_ptr<Model>& model,
    Optimizer& optimizer,
    Loader& loader,
    const Training& training,
    Accelerator* accelerator) {
  std::vector<Step> steps;
  torch::manual_seed(8);
  const int64_t batches =
      (training.size + training.batch - 1) / training.batch;
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t i = 0;
    for (auto& batch : loader) {
      std::optional<accel::AccumulateGuard> guard;
      if (accelerator != nullptr) {
        guard.emplace(accelerator->accumulate(model));
        const auto world = accelerator->num_processes();
        EXPECT_EQ(
            accel::distributed::is_distributed(batch.data),
            world > 1 && batch.data.size(0) >= world);
      }
      const int64_t first = i / training.window * training.window;
      const bool last = ++i == batches || i == first + training.window;
      if (accelerator != nullptr || i == first + 1) {
        optimizer.zero_grad();
      }
      const auto loss = model->loss(batch.data, batch.target);
      double norm = 0;
      if (accelerator != nullptr) {
        accelerator->backward(loss);
      } else {
        const auto length = std::min(training.window, batches - first);
        (loss / static_cast<double>(length)).backward();
      }
      if (training.clip > 0 && last) {
        norm = accelerator != nullptr
            ? accelerator->clip_grad_norm_(model->parameters(), training.clip)
            : torch::nn::utils::clip_grad_norm_(
                  model->parameters(), training.clip);
      }
      if (accelerator != nullptr || last) {
        optimizer.step();
      }
      Step step{loss.template item<double>(), norm, {}};
      for (const auto& all :
           {model->named_parameters(), model->named_buffers()}) {
        for (const auto& item : all) {
          step.tensors.emplace_back(
              item.key(),
              accel::distributed::full_tensor(item.value().detach()).clone());
        }
      }
      steps.push_back(std::move(step));
    }
    EXPECT_EQ(i, batches);
  }
  return steps;
}

void expect_same_steps(
    const std::vector<Step>& actual, const std::vector<Step>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const auto near = [](double is, double should) {
      EXPECT_NEAR(is, should, 1e-9 * std::max(1.0, std::abs(should)));
    };
    near(actual[i].loss, expected[i].loss);
    near(actual[i].norm, expected[i].norm);
    ASSERT_EQ(actual[i].tensors.size(), expected[i].tensors.size());
    for (size_t t = 0; t < actual[i].tensors.size(); ++t) {
      const auto& is = actual[i].tensors[t].second;
      const auto& should = expected[i].tensors[t].second;
      EXPECT_EQ(is.sizes(), should.sizes());
      EXPECT_TRUE(torch::allclose(is, should, 1e-9, 1e-10))
          << actual[i].tensors[t].first << "\nis " << is << "\nnot " << should;
    }
  }
  EXPECT_GT(expected.size(), 4U);
}

/// `make(data set, options)`.
template <typename Make>
auto loader_of(const Training& training, const Make& make) {
  return make(
      Samples(static_cast<size_t>(training.size), training.augments)
          .map(torch::data::transforms::Stack<>()),
      DataLoaderOptions(static_cast<size_t>(training.batch))
          .workers(training.workers));
}

template <typename Optimizer>
std::vector<Step> plain_steps(
    const std::shared_ptr<Model>& model,
    Optimizer& optimizer,
    const Training& training) {
  return loader_of(training, [&](auto data, auto options) {
    if (training.with_replacement) {
      auto loader = torch::data::make_data_loader(
          data, WithReplacement(static_cast<size_t>(training.size)), options);
      return train(model, optimizer, *loader, training, nullptr);
    }
    auto loader = torch::data::make_data_loader(data, options);
    return train(model, optimizer, *loader, training, nullptr);
  });
}

template <typename Optimizer>
std::vector<Step> accelerated_steps(
    const std::shared_ptr<Model>& model,
    Optimizer& optimizer,
    const Training& training,
    Accelerator& accelerator) {
  return loader_of(training, [&](auto data, auto options) {
    if (training.with_replacement) {
      auto loader = accel::data::make_data_loader(
          data, WithReplacement(static_cast<size_t>(training.size)), options);
      return train(model, optimizer, *loader, training, &accelerator);
    }
    auto loader = accel::data::make_data_loader(data, options);
    return train(model, optimizer, *loader, training, &accelerator);
  });
}

void follows_one_device(
    const std::string& name,
    const MakeModel& make,
    const Training& training = Training()) {
  SCOPED_TRACE(name);
  const auto options = torch::optim::SGDOptions(0.05).momentum(training.momentum);
  torch::manual_seed(4);
  const auto plain = make();
  torch::optim::SGD plain_optimizer(plain->parameters(), options);
  const auto expected = plain_steps(plain, plain_optimizer, training);
  const auto state = generator_state();

  Accelerator accelerator(AcceleratorOptions()
                              .match_single_device(true)
                              .gradient_accumulation_steps(training.window));
  torch::manual_seed(4);
  const auto model = make();
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(
      model->parameters(), options);
  accelerator.prepare(model, optimizer);
  expect_same_steps(
      accelerated_steps(model, optimizer, training, accelerator), expected);
  EXPECT_TRUE(torch::equal(generator_state(), state))
      << "as many random numbers as on one device";
  accelerator.clear();
}

Tensor as_images(const Tensor& x) {
  return x.view({x.size(0), 3, 2, 2});
}

} // namespace

ACCEL_RANK_FUNCTION(match_norms) {
  using namespace torch::nn;
  follows_one_device(
      "batch norm",
      layers(
          cross_entropy,
          linear(kColumns, 6),
          [] { return BatchNorm1d(6); },
          tanh_layer(),
          linear(6, kClasses)));
  const auto images = [](torch::nn::Sequential& net,
                         const Tensor& x,
                         const Tensor& y) {
    return F::cross_entropy(net->forward(as_images(x)), y);
  };
  const auto convolution = [] {
    return Conv2d(Conv2dOptions(3, 4, 3).padding(1));
  };
  const auto flatten = [] { return Flatten(); };
  const std::vector<BatchNormOptions> all = {
      BatchNormOptions(4),
      BatchNormOptions(4).momentum(std::nullopt).eps(1e-2),
      BatchNormOptions(4).affine(false),
      BatchNormOptions(4).track_running_stats(false)};
  for (const auto& options : all) {
    follows_one_device(
        "batch norm of images",
        layers(
            images,
            convolution,
            [=] { return BatchNorm2d(options); },
            tanh_layer(),
            flatten,
            linear(16, kClasses)));
  }
  follows_one_device(
      "norms of samples",
      layers(
          images,
          convolution,
          [] { return InstanceNorm2d(InstanceNorm2dOptions(4).affine(true)); },
          [] { return GroupNorm(GroupNormOptions(2, 4)); },
          tanh_layer(),
          flatten,
          [] { return LayerNorm(LayerNormOptions({16})); },
          linear(16, kClasses)));
  // A gradient of the gradient through the batch's statistics.
  follows_one_device(
      "gradient penalty",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto input = x.detach().clone().requires_grad_();
            const auto output = net->forward(input);
            const auto gradient = torch::autograd::grad(
                {output.sum()}, {input}, {}, true, /*create_graph=*/true)[0];
            return F::cross_entropy(output, y) +
                (gradient.norm(2, 1) - 1).pow(2).mean();
          },
          linear(kColumns, 6),
          [] { return BatchNorm1d(6); },
          tanh_layer(),
          linear(6, kClasses)));
}

TEST(MatchSingleDevice, Norms) {
  run_all("match_norms");
}

ACCEL_RANK_FUNCTION(match_random_numbers) {
  using namespace torch::nn;
  follows_one_device(
      "dropout",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto images = as_images(
                torch::alpha_dropout(torch::rrelu(x, 0.1, 0.4, true), 0.2, true));
            return F::cross_entropy(net->forward(images), y);
          },
          [] { return Dropout2d(0.4); },
          [] { return Flatten(); },
          linear(kColumns, 6),
          [] { return Dropout(0.5); },
          linear(6, kClasses)));
  follows_one_device(
      "numbers for samples and for all",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto n = x.size(0);
            const auto double_type = torch::dtype(torch::kDouble);
            // For each sample: noise, a time, a coin; another sample.
            auto input = x + 0.1 * torch::randn_like(x) +
                0.1 * torch::randn({n, kColumns}, double_type) +
                0.01 * torch::randint(1000, {n, 1}, double_type);
            input = input * torch::bernoulli(torch::full_like(x, 0.7));
            const auto order = torch::randperm(n);
            input = 0.8 * input + 0.2 * input.index_select(0, order);
            // For all of them.
            input = input * torch::rand({1}, double_type) +
                torch::randn({kColumns}, double_type);
            const auto scores = net->forward(input);
            const auto drawn =
                torch::multinomial(scores.detach().softmax(1), 1).squeeze(1);
            return F::cross_entropy(scores, y) +
                0.1 * F::cross_entropy(scores, drawn);
          },
          linear(kColumns, kClasses)));
}

TEST(MatchSingleDevice, RandomNumbers) {
  run_all("match_random_numbers");
}

ACCEL_RANK_FUNCTION(match_class_losses) {
  const auto weights =
      torch::tensor({0.5, 2., 0.1, 1., 3.}, torch::kDouble);
  const std::vector<std::pair<std::string, F::CrossEntropyFuncOptions>> all = {
      {"class weights", F::CrossEntropyFuncOptions().weight(weights)},
      {"ignored", F::CrossEntropyFuncOptions().ignore_index(2)},
      {"all options",
       F::CrossEntropyFuncOptions()
           .weight(weights)
           .ignore_index(1)
           .label_smoothing(0.1)},
      {"a sum", F::CrossEntropyFuncOptions().reduction(torch::kSum)}};
  for (const auto& [name, chosen] : all) {
    follows_one_device(
        name,
        layers(
            [chosen = chosen](
                torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
              return F::cross_entropy(net->forward(x), y, chosen);
            },
            linear(kColumns, kClasses)));
  }
  // Tokens, of which each text has another number; of the later texts, which
  // one process has, none.
  follows_one_device(
      "padding",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto n = x.size(0);
            auto targets = (y.unsqueeze(1) + torch::arange(3)) % kClasses;
            const auto counts = torch::tensor({3, 1, 0, 0, 0}).slice(0, 0, n);
            targets = targets.masked_fill(
                torch::arange(3).unsqueeze(0).ge(counts.unsqueeze(1)), -100);
            const auto scores = net->forward(x).view({n, 3, kClasses});
            return torch::nll_loss(
                scores.log_softmax(2).reshape({-1, kClasses}),
                targets.reshape({-1}));
          },
          linear(kColumns, 3 * kClasses)));
}

TEST(MatchSingleDevice, ClassLosses) {
  run_all("match_class_losses");
}

ACCEL_RANK_FUNCTION(match_losses_of_the_batch) {
  // No sum over the parts of a batch gives these.
  follows_one_device(
      "contrastive",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto a = F::normalize(net->forward(x));
            const auto b = F::normalize(net->forward(x * 1.1));
            const auto hardest =
                torch::cdist(a, a)
                    .masked_fill(y.unsqueeze(0).ne(y.unsqueeze(1)), 0)
                    .amax(1);
            return F::cross_entropy(
                       a.matmul(b.t()) / 0.1, torch::arange(x.size(0))) +
                hardest.mean();
          },
          linear(kColumns, 6),
          tanh_layer(),
          linear(6, 4)));
  // A column of predictions and a row of targets: every one with every other.
  follows_one_device(
      "shapes that meet",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            return (net->forward(x) - y).pow(2).mean() +
                (x.std(0) - x.median()).abs().max();
          },
          linear(kColumns, 1)));
  // What the numbers of the batch decide.
  follows_one_device(
      "branches on values",
      layers(
          [](torch::nn::Sequential& net, const Tensor& x, const Tensor& y) {
            const auto output = net->forward(x);
            const auto chosen = y.ge(2).nonzero().squeeze(1);
            return output.abs().max().item<double>() > 0.8
                ? output.index_select(0, chosen).pow(2).sum()
                : std::get<0>(output.topk(1, 0)).mean();
          },
          linear(kColumns, 3)));
}

TEST(MatchSingleDevice, LossesOfTheWholeBatch) {
  run_all("match_losses_of_the_batch");
}

namespace {

/// A part is used for every third batch, one never, one is frozen at times.
struct Branches : Model {
  Branches() {
    for (auto* layer : {&left, &right, &never, &frozen}) {
      *layer = torch::nn::Linear(kColumns, kClasses);
    }
    register_module("left", left);
    register_module("right", right);
    register_module("never", never);
    register_module("frozen", frozen);
    to(torch::kDouble);
  }
  Tensor loss(const Tensor& x, const Tensor& y) override {
    ++calls;
    for (auto& parameter : frozen->parameters()) {
      parameter.set_requires_grad(calls % 4 == 0);
    }
    auto scores = left->forward(x) + frozen->forward(x);
    if (calls % 3 == 0) {
      scores = scores + right->forward(x);
    }
    return F::cross_entropy(scores, y);
  }
  torch::nn::Linear left = nullptr, right = nullptr, never = nullptr,
                    frozen = nullptr;
  int64_t calls = 0;
};

/// Words of a table, whose rows are shortened where they are looked up.
struct Words : Model {
  explicit Words(bool sparse) {
    table = register_module(
        "table",
        torch::nn::Embedding(
            torch::nn::EmbeddingOptions(20, 4).max_norm(0.9).sparse(sparse)));
    head = register_module("head", torch::nn::Linear(4, kClasses));
    to(torch::kDouble);
  }
  Tensor loss(const Tensor& x, const Tensor& y) override {
    const auto words = (x * 10).to(torch::kLong).remainder(20);
    return F::cross_entropy(
        head->forward(table->forward(words).tanh().mean(1)), y);
  }
  torch::nn::Embedding table = nullptr;
  torch::nn::Linear head = nullptr;
};

/// Its state goes on from batch to batch.
struct Recurrent : Model {
  Recurrent() {
    gru = register_module(
        "gru",
        torch::nn::GRU(
            torch::nn::GRUOptions(3, 4).num_layers(2).batch_first(true)));
    head = register_module("head", torch::nn::Linear(4, kClasses));
    to(torch::kDouble);
  }
  Tensor loss(const Tensor& x, const Tensor& y) override {
    if (!state.defined() || state.size(1) != x.size(0)) {
      state = torch::zeros({2, x.size(0), 4}, torch::kDouble);
    }
    Tensor output;
    std::tie(output, state) = gru->forward(x.view({x.size(0), 4, 3}), state);
    state = state.detach();
    return F::cross_entropy(head->forward(output.select(1, -1)), y);
  }
  torch::nn::GRU gru = nullptr;
  torch::nn::Linear head = nullptr;
  Tensor state;
};

/// What Python scripts.
struct Scripted : Model {
  Scripted() : script("scripted") {
    weight = register_parameter(
        "weight", torch::randn({kClasses, kColumns}, torch::kDouble));
    script.register_parameter("weight", weight, /*is_buffer=*/false);
    script.register_attribute(
        "training", c10::BoolType::get(), torch::IValue(true));
    script.define(R"(
      def forward(self, x):
        centred = x - x.mean(0)
        scores = torch.matmul(centred, self.weight.t())
        if float(scores.max()) > 1.0:
          scores = torch.tanh(scores)
        return torch.dropout(scores, 0.3, self.training)
    )");
  }
  Tensor loss(const Tensor& x, const Tensor& y) override {
    return F::cross_entropy(script.forward({x}).toTensor(), y);
  }
  torch::jit::Module script;
  Tensor weight;
};

template <typename Made, typename... Args>
MakeModel made(Args... args) {
  return [=]() -> std::shared_ptr<Model> {
    return std::make_shared<Made>(args...);
  };
}

} // namespace

ACCEL_RANK_FUNCTION(match_models) {
  follows_one_device("branches", made<Branches>());
  follows_one_device("words", made<Words>(/*sparse=*/false));
  Training without_momentum;
  without_momentum.momentum = 0;
  follows_one_device(
      "sparse words", made<Words>(/*sparse=*/true), without_momentum);
  follows_one_device("recurrent", made<Recurrent>());
  follows_one_device("scripted", made<Scripted>());
}

TEST(MatchSingleDevice, Models) {
  run_all("match_models");
}

ACCEL_RANK_FUNCTION(match_loops) {
  const auto net = layers(
      cross_entropy,
      linear(kColumns, 6),
      [] { return torch::nn::BatchNorm1d(6); },
      [] { return torch::nn::Dropout(0.3); },
      linear(6, kClasses));
  Training training;
  // Four batches in windows of three: the last window has one.
  training.window = 3;
  training.clip = 0.5;
  follows_one_device("windows and clipping", net, training);
  training.augments = true;
  follows_one_device("windows and augmentation", net, training);

  training = Training();
  training.augments = true;
  follows_one_device("augmentation", net, training);
  training.with_replacement = true;
  follows_one_device("a sampler that draws", net, training);
  training = Training();
  training.workers = 2;
  follows_one_device("workers", net, training);
  // Every batch has fewer samples than three processes.
  training = Training();
  training.size = 10;
  training.batch = 2;
  follows_one_device("small batches", net, training);
}

TEST(MatchSingleDevice, Loops) {
  run_all("match_loops");
}

// What is computed in low precision is rounded where one device rounds, but for
// sums over the batch.
ACCEL_RANK_FUNCTION(match_low_precision) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::manual_seed(3);
  const auto whole =
      (torch::randn({7, 4, 6, 6}) * 3 + 7).to(torch::kBFloat16);
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto norm = [&](const Tensor& x) {
      const auto channels = torch::full({4}, 1.5, dtype);
      return torch::batch_norm(
          x, channels, channels, {}, {}, true, 0, 1e-5, false);
    };
    const auto run = [&](const Tensor& x) {
      const auto input = x.detach().clone().requires_grad_();
      const auto output = norm(input);
      output.to(torch::kFloat).sin().mean().backward();
      return std::make_pair(
          accelerator.full(output.detach()).to(torch::kFloat),
          accelerator.full(input.grad()).to(torch::kFloat));
    };
    const auto expected = run(whole);
    const auto actual = run(accelerator.distribute(whole));
    EXPECT_TRUE(torch::allclose(actual.first, expected.first, 2e-2, 2e-2));
    const auto largest = expected.second.abs().max();
    ASSERT_GT(largest.item<double>(), 0);
    EXPECT_TRUE(torch::allclose(
        actual.second / largest, expected.second / largest, 0, 3e-2));
  }
}

TEST(MatchSingleDevice, LowPrecision) {
  run_all("match_low_precision");
}

// An evaluation: counts, predictions, and what is read of them in memory.
ACCEL_RANK_FUNCTION(match_evaluation) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  torch::manual_seed(5);
  torch::nn::Sequential net(
      torch::nn::Linear(kColumns, 6),
      torch::nn::BatchNorm1d(6),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(6, kClasses));
  net->to(torch::kDouble);
  accelerator.prepare(net);
  net->eval();
  const torch::NoGradGuard no_grad;
  const auto evaluate = [&](auto& loader) {
    int64_t correct = 0;
    double sum = 0;
    std::vector<Tensor> predictions;
    for (auto& batch : loader) {
      const auto scores = net->forward(batch.data);
      const auto predicted = scores.argmax(1);
      correct += predicted.eq(batch.target).sum().template item<int64_t>();
      sum += accelerator
                 .reduce_for_metrics(
                     F::cross_entropy(scores, batch.target) *
                     static_cast<double>(batch.data.size(0)))
                 .template item<double>();
      const auto rows = accelerator.gather_for_metrics(predicted);
      EXPECT_LT(rows.template data_ptr<int64_t>()[0], kClasses);
      predictions.push_back(rows);
    }
    return std::make_tuple(correct, sum, torch::cat(predictions));
  };
  const auto data =
      Samples(17, false).map(torch::data::transforms::Stack<>());
  auto plain = torch::data::make_data_loader<SequentialSampler>(data, 5);
  auto ours = accel::data::make_data_loader<SequentialSampler>(data, 5);
  const auto expected = evaluate(*plain);
  const auto actual = evaluate(*ours);
  EXPECT_EQ(std::get<0>(actual), std::get<0>(expected));
  EXPECT_NEAR(std::get<1>(actual), std::get<1>(expected), 1e-9);
  EXPECT_TRUE(torch::equal(std::get<2>(actual), std::get<2>(expected)));
}

TEST(MatchSingleDevice, Evaluation) {
  run_all("match_evaluation");
}
