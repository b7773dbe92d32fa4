// All losses, and what draws random numbers in a forward pass.

#include "zoo.h"

namespace zoo::losses {

/// 19 rows of 6 numbers; 3 classes of which one is rare, and 9 for none.
Rows samples() {
  auto x = torch::randn({19, 6});
  auto y = (x.select(1, 0) * 2 + 1).to(torch::kLong).clamp(0, 2);
  y.index_put_({torch::tensor({3, 8, 9})}, 9);
  return {x, y};
}

ZOO_MODEL(class_losses) {
  nn::Linear net(6, 3);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  const auto weights = torch::tensor({1., 0.2, 3.});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto scores = net(batch.data);
      auto known = batch.target.clamp_max(2);
      auto loss = F::cross_entropy(
                      scores, batch.target,
                      F::CrossEntropyFuncOptions().weight(weights).ignore_index(9)) +
          F::nll_loss(
              scores.log_softmax(1), batch.target,
              F::NLLLossFuncOptions().weight(weights).ignore_index(9).reduction(torch::kSum)) /
              batch.data.size(0) +
          F::cross_entropy(
              scores, batch.target,
              F::CrossEntropyFuncOptions().ignore_index(9).label_smoothing(0.2).weight(weights)) +
          F::cross_entropy(scores, (scores.detach() * 2).softmax(1)) +
          F::multi_margin_loss(
              scores, known, F::MultiMarginLossFuncOptions().margin(0.5).weight(weights));
      // Focal, by hand, over those that count.
      auto chance = scores.softmax(1).gather(1, known.unsqueeze(1)).squeeze(1);
      auto counts = batch.target.ne(9).to(torch::kDouble);
      auto focal = (-(1 - chance).pow(2) * chance.log() * counts).sum() / counts.sum();
      run.update(*optimizer, loss + focal);
    }
  }
  run.finish(net);
}

ZOO_MODEL(regression_losses) {
  nn::Linear net(6, 2);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.02);
  run.prepare(net, *optimizer);
  auto x = torch::randn({19, 6});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 2).abs() * 2), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto y = net(batch.data);
      auto target = batch.target;
      auto sign = torch::sign(batch.data.slice(1, 0, 2));
      auto several = torch::where(
          batch.data.slice(1, 0, 2) > 0, torch::tensor({0, 1}), torch::tensor({-1, -1}));
      auto variance = F::softplus(y.flip(1)) + 0.1;
      auto loss = F::mse_loss(y, target) + F::l1_loss(y, target) +
          F::smooth_l1_loss(y, target, F::SmoothL1LossFuncOptions().beta(0.5)) +
          F::huber_loss(y, target, F::HuberLossFuncOptions().delta(0.7)) +
          F::poisson_nll_loss(y, target, F::PoissonNLLLossFuncOptions().full(true)) +
          F::soft_margin_loss(y, sign) +
          F::multilabel_soft_margin_loss(y, (sign + 1) / 2) +
          F::multilabel_margin_loss(y, several) +
          F::kl_div(
              y.log_softmax(1), target.softmax(1),
              F::KLDivFuncOptions().reduction(torch::kBatchMean)) +
          F::binary_cross_entropy(torch::sigmoid(y), target / target.max()) +
          (0.5 * (variance.log() + (y - target).pow(2) / variance)).mean() +
          torch::logaddexp(y, target).mean() +
          torch::max(0.3 * (target - y), -0.7 * (target - y)).mean();
      run.update(*optimizer, loss);
    }
  }
  run.finish(net);
}

// Sequences without an alignment; some are shorter than others.
ZOO_MODEL(connectionist_temporal) {
  nn::GRU gru(nn::GRUOptions(3, 6));
  nn::Linear head(6, 5);
  auto optimizer =
      run.optimizer<optim::Adam>(parameters(gru, head), optim::AdamOptions(1e-2));
  run.prepare(gru, head, *optimizer);
  auto lengths = torch::arange(17) % 3 + 6;
  auto labels = torch::randint(1, 5, {17, 3}, torch::kLong);
  auto loader = run.loader(
      Rows(torch::randn({17, 8, 3}), torch::cat({labels, lengths.unsqueeze(1)}, 1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(gru, head);
      const auto n = batch.data.size(0);
      auto output = std::get<0>(gru->forward(batch.data.transpose(0, 1)));
      auto log_chances = F::log_softmax(head(output), 2);
      auto target_lengths = torch::full({n}, 2, torch::kLong) + (batch.target.select(1, 0) > 2);
      auto loss = F::ctc_loss(
          log_chances, batch.target.slice(1, 0, 3), batch.target.select(1, 3),
          target_lengths, F::CTCLossFuncOptions().zero_infinity(true));
      run.update(*optimizer, loss);
      // What it would say: the best of each step, repetitions and blanks left out.
      auto best = log_chances.argmax(2).t();
      for (int64_t i = 0; i < n; ++i) {
        auto kept = std::get<0>(torch::unique_consecutive(best[i]));
        run.note("said", kept.masked_select(kept.ne(0)));
      }
    }
  }
  run.finish(gru, head);
}

// The random numbers of one device, whatever draws them.
ZOO_MODEL(all_dropouts) {
  nn::Linear first(6, 12), second(12, 3);
  auto optimizer = run.optimizer<optim::SGD>(parameters(first, second), 0.1);
  run.prepare(first, second, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second);
      const auto n = batch.data.size(0);
      auto h = torch::selu(first(batch.data));
      h = F::alpha_dropout(h, F::AlphaDropoutFuncOptions().p(0.1).training(true));
      h = F::dropout2d(h.view({n, 3, 2, 2}), F::Dropout2dFuncOptions().p(0.2));
      h = F::feature_alpha_dropout(h, F::FeatureAlphaDropoutFuncOptions().p(0.1).training(true));
      h = F::dropout(h.flatten(1), F::DropoutFuncOptions().p(0.3).inplace(true));
      h = F::rrelu(h, F::RReLUFuncOptions().training(true));
      // Whole samples leave out a branch (stochastic depth).
      auto stays = torch::empty({n, 1}).bernoulli_(0.8) / 0.8;
      h = h + stays * torch::tanh(h);
      // Numbers that are drawn where the data is, and where it is not.
      auto scores = second(h) + torch::normal(0., 0.01, {n, 3}) +
          0.01 * torch::empty_like(h.slice(1, 0, 3)).exponential_() +
          0.01 * torch::zeros({n, 1}).cauchy_(0, 0.01).clamp(-1, 1);
      // Gumbel's trick, hard and straight through.
      auto uniform = torch::rand_like(scores).clamp(1e-6, 1 - 1e-6);
      auto soft = (scores - (-uniform.log()).log()).softmax(1);
      auto hard = torch::zeros_like(soft).scatter_(1, soft.argmax(1, true), 1.);
      auto choice = (hard - soft).detach() + soft;
      auto loss = F::cross_entropy(
                      scores, batch.target, F::CrossEntropyFuncOptions().ignore_index(9)) +
          0.1 * (choice * torch::tensor({0., 1., 2.})).sum(1).mean();
      run.update(*optimizer, loss);
      run.note("drawn", torch::bernoulli(scores.detach().sigmoid()).sum(0));
      run.note("numbers", torch::poisson(scores.detach().exp()).sum(0));
      run.note("order", batch.target.index({torch::randperm(n)}));
    }
  }
  run.finish(first, second);
}

// Pictures that are changed on the way, each in its own manner.
ZOO_MODEL(augmentation) {
  nn::Sequential net(
      nn::Conv2d(nn::Conv2dOptions(2, 4, 3)), nn::ReLU(), nn::Flatten(), nn::Linear(4 * 16, 3));
  auto optimizer = run.optimizer<optim::SGD>(
      net->parameters(), optim::SGDOptions(0.05).momentum(0.9));
  run.prepare(net, *optimizer);
  auto loader = run.loader(Rows(torch::rand({17, 2, 6, 6}), torch::arange(17) % 3), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      auto x = batch.data.clone();
      // Turned round: those that a coin has named, in place.
      auto turned = torch::rand({n}) < 0.5;
      x.index_put_({turned}, x.index({turned}).flip({3}));
      // A square of each is cut out and another place of it is shown.
      auto padded = F::pad(x, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReplicate));
      auto offsets = torch::randint(3, {n, 2}, torch::kLong);
      std::vector<Tensor> crops;
      for (int64_t i = 0; i < n; ++i) {
        const auto top = offsets[i][0].item<int64_t>(), left = offsets[i][1].item<int64_t>();
        crops.push_back(padded[i].slice(1, top, top + 6).slice(2, left, left + 6));
      }
      x = torch::stack(crops);
      // A patch is wiped out in place.
      for (int64_t i = 0; i < n; i += 2) {
        const auto at = torch::randint(5, {1}).item<int64_t>();
        x[i].slice(1, at, at + 2).slice(2, at, at + 2).fill_(0.5);
      }
      // Brightness and contrast of each, then all normed by their channels.
      x = x * torch::empty({n, 1, 1, 1}).uniform_(0.8, 1.2);
      x = (x - x.mean({0, 2, 3}, true)) / (x.std({0, 2, 3}, true, true) + 1e-5);
      // Samples are mixed with others.
      const double share = 0.5 + 0.5 * torch::rand({1}).item<double>();
      auto order = torch::randperm(n);
      x = share * x + (1 - share) * x.index({order});
      auto scores = net->forward(x);
      run.update(
          *optimizer,
          share * F::cross_entropy(scores, batch.target) +
              (1 - share) * F::cross_entropy(scores, batch.target.index({order})));
    }
  }
  run.finish(net);
}

// The same with all labels in one row, which each process would have to know where
// to begin in.
ZOO_MODEL(labels_in_one_row) {
  nn::Linear net(3, 5);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  auto loader = run.loader(
      Rows(torch::randn({17, 8, 3}), torch::randint(1, 5, {17, 4}, torch::kLong)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      std::vector<Tensor> labels;
      std::vector<int64_t> lengths, steps;
      for (int64_t i = 0; i < n; ++i) {
        lengths.push_back(1 + batch.target[i][3].item<int64_t>() % 3);
        labels.push_back(batch.target[i].slice(0, 0, lengths.back()));
        steps.push_back(8 - i % 2);
      }
      auto log_chances = net(batch.data).log_softmax(2).transpose(0, 1);
      auto loss = torch::ctc_loss(
          log_chances, torch::cat(labels), torch::tensor(steps), torch::tensor(lengths), 0,
          torch::Reduction::None);
      run.note("each", loss);
      run.update(*optimizer, (loss / torch::tensor(lengths)).mean());
    }
  }
  run.finish(net);
}

} // namespace zoo::losses
