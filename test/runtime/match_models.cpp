// Models with parts that are not always used, tables, states, scripts.

#include "expectations.h"
#include "match_training.h"
#include "multiprocess.h"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

namespace accel::test::match {

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

} // namespace accel::test::match
