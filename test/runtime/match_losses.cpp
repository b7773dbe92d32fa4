// Losses: of classes, and of the whole batch.

#include "expectations.h"
#include "match_training.h"
#include "multiprocess.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace accel::test::match {

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

} // namespace accel::test::match
