// Sequence-first layouts, [time, batch, features], are cut along dimension 1:
// layers keep the cut, and results and gradients are the plain ones.

#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::distributed::placements;
using accel::distributed::Shard;
using accel::test::run_and_expect_success;
using torch::Tensor;

ACCEL_RANK_FUNCTION(inner_cuts) {
  Accelerator accelerator(
      AcceleratorOptions().cpu(true).match_single_device(true));
  torch::manual_seed(3);
  const auto options = torch::dtype(torch::kDouble);
  torch::nn::Linear linear(4, 3);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true));
  torch::nn::GRU batch_first(torch::nn::GRUOptions(4, 3).batch_first(true));
  torch::nn::RNN rnn(4, 3);
  torch::nn::MultiheadAttention attention(4, 2);
  const Tensor matrix = torch::randn({4, 5}, options);
  const Tensor vector = torch::randn({4}, options);
  std::vector<Tensor> trained;
  const std::vector<torch::nn::Module*> models{
      linear.get(), lstm.get(), batch_first.get(), rnn.get(), attention.get()};
  for (auto* const model : models) {
    model->to(torch::kDouble);
    for (auto& parameter : model->parameters()) {
      trained.push_back(parameter);
    }
  }
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>>
      layers{
          {"linear", [&](const Tensor& x) { return linear->forward(x); }},
          {"linear of five dimensions",
           [&](const Tensor& x) {
             return linear->forward(x.unsqueeze(2).unsqueeze(0)).squeeze(3).squeeze(0);
           }},
          {"lstm", [&](const Tensor& x) { return std::get<0>(lstm->forward(x)); }},
          {"gru, batch first",
           [&](const Tensor& x) {
             return std::get<0>(batch_first->forward(x.transpose(0, 1))).transpose(0, 1);
           }},
          {"rnn",
           [&](const Tensor& x) {
             return std::get<0>(
                 rnn->forward(x, torch::zeros({1, 7, 3}, options)));
           }},
          {"attention",
           [&](const Tensor& x) { return std::get<0>(attention->forward(x, x, x)); }},
          {"matmul", [&](const Tensor& x) { return x.matmul(matrix); }},
          {"times a vector",
           [&](const Tensor& x) { return x.matmul(vector); }},
      };
  const Tensor plain = torch::randn({5, 7, 4}, options);
  for (const auto& [name, layer] : layers) {
    std::vector<std::vector<Tensor>> results;
    for (const bool cut : {false, true}) {
      Tensor x = plain.clone().requires_grad_();
      const Tensor y = layer(cut ? accelerator.distribute(x, 1) : x);
      if (cut) {
        EXPECT_TRUE(
            accel::distributed::is_distributed(y) &&
            placements(y).at(0) == Shard(1))
            << name;
        EXPECT_TRUE(y.is_contiguous() == layer(x).is_contiguous()) << name;
      }
      for (auto& parameter : trained) {
        parameter.mutable_grad() = Tensor();
      }
      y.sin().sum().backward();
      std::vector<Tensor> found{accelerator.full(y).detach(), accelerator.full(x.grad())};
      for (const auto& parameter : trained) {
        if (parameter.grad().defined()) {
          found.push_back(accelerator.full(parameter.grad()).clone());
        }
      }
      results.push_back(found);
    }
    ASSERT_EQ(results[0].size(), results[1].size()) << name;
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(torch::allclose(results[0][i], results[1][i], 1e-12, 1e-12))
          << name << ", result " << i;
    }
  }
}

TEST(InnerCuts, LayersKeepThem) {
  run_and_expect_success("inner_cuts", 2);
  run_and_expect_success("inner_cuts", 3);
}
