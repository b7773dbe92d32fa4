// Models that make samples: with noise drawn in the loop, several optimizers,
// gradients with respect to samples.

#include "zoo.h"

#include <cmath>

namespace zoo::generative {

/// 23 points around two rings.
Rows rings() {
  auto angle = torch::rand({23}) * 2 * M_PI;
  auto radius = 1 + (torch::arange(23) % 2);
  auto x = torch::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return {x, torch::arange(23) % 2};
}

nn::Sequential dense(int64_t from, int64_t to) {
  return nn::Sequential(
      nn::Linear(from, 8), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)), nn::Linear(8, to));
}

// As in PyTorch's example: both losses of the judge by themselves.
ZOO_MODEL(gan) {
  nn::Sequential maker(
      nn::Linear(nn::LinearOptions(3, 8).bias(false)), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 2));
  auto judge = dense(2, 1);
  const auto options = optim::AdamOptions(2e-2).betas(std::make_tuple(0.5, 0.99));
  auto maker_optimizer = run.optimizer<optim::Adam>(maker->parameters(), options);
  auto judge_optimizer = run.optimizer<optim::Adam>(judge->parameters(), options);
  run.prepare(maker, judge, *maker_optimizer, *judge_optimizer);
  auto loader = run.loader(rings(), 6);
  const auto fixed = torch::randn({4, 3});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(maker, judge);
      const auto rows = batch.data.size(0);
      judge->zero_grad();
      auto genuine = torch::empty({rows}).uniform_(0.8, 1.0);
      auto on_genuine = F::binary_cross_entropy(
          torch::sigmoid(judge->forward(batch.data)).view(-1), genuine);
      run.backward(on_genuine);
      auto made = maker->forward(torch::randn({rows, 3}));
      auto on_made = torch::binary_cross_entropy(
          torch::sigmoid(judge->forward(made.detach())).squeeze(1),
          torch::zeros(rows));
      run.backward(on_made);
      judge_optimizer->step();
      maker->zero_grad();
      genuine.fill_(1);
      auto loss = F::binary_cross_entropy(
          torch::sigmoid(judge->forward(made)).view(-1), genuine);
      run.backward(loss);
      maker_optimizer->step();
      run.note("judge", on_genuine + on_made);
      run.note("maker", loss);
    }
    torch::NoGradGuard no_grad;
    maker->eval();
    run.note("made", maker->forward(fixed));
    maker->train();
  }
  run.finish(maker, judge);
}

// A penalty on the judge's gradient between genuine and made samples.
ZOO_MODEL(gan_gradient_penalty) {
  auto maker = dense(3, 2), judge = dense(2, 1);
  auto maker_optimizer = run.optimizer<optim::RMSprop>(maker->parameters(), 5e-3);
  auto judge_optimizer = run.optimizer<optim::RMSprop>(judge->parameters(), 5e-3);
  run.prepare(maker, judge, *maker_optimizer, *judge_optimizer);
  auto loader = run.loader(rings(), 6);
  int64_t steps = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(maker, judge);
      const auto n = batch.data.size(0);
      auto made = maker->forward(torch::randn({n, 3}));
      judge_optimizer->zero_grad();
      auto mix = torch::rand({n, 1}).expand_as(batch.data);
      auto between = (mix * batch.data + (1 - mix) * made).detach();
      between.requires_grad_(true);
      auto scores = judge->forward(between);
      auto gradient = torch::autograd::grad(
          {scores}, {between}, {torch::ones_like(scores)},
          /*retain_graph=*/true, /*create_graph=*/true)[0];
      auto penalty = (gradient.view({n, -1}).norm(2, 1) - 1).pow(2).mean();
      auto loss = judge->forward(made.detach()).mean() -
          judge->forward(batch.data).mean() + 10 * penalty;
      run.backward(loss);
      judge_optimizer->step();
      run.note("judge", loss);
      run.note("penalty", penalty);
      if (++steps % 2 == 0) {
        maker_optimizer->zero_grad();
        auto maker_loss = -judge->forward(made).mean();
        run.backward(maker_loss);
        maker_optimizer->step();
        run.note("maker", maker_loss);
        torch::NoGradGuard no_grad;
        for (auto& p : judge->parameters()) {
          p.clamp_(-0.6, 0.6);
        }
      }
    }
  }
  run.finish(maker, judge);
}

ZOO_MODEL(vae) {
  nn::Linear encoder(6, 8), mean(8, 2), spread(8, 2);
  auto decoder = dense(2, 6);
  auto optimizer = run.optimizer<optim::Adam>(
      parameters(encoder, mean, spread, decoder), optim::AdamOptions(1e-2));
  run.prepare(encoder, mean, spread, decoder, *optimizer);
  auto loader = run.loader(Rows(torch::rand({23, 6}), torch::arange(23)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    double sum = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate(encoder, mean, spread, decoder);
      auto h = torch::tanh(encoder(batch.data));
      auto mu = mean(h), log_var = spread(h);
      auto z = mu + torch::exp(0.5 * log_var) * torch::randn_like(log_var);
      auto copy = torch::sigmoid(decoder->forward(z));
      auto loss = F::binary_cross_entropy(
                      copy, batch.data,
                      F::BinaryCrossEntropyFuncOptions().reduction(torch::kSum)) -
          0.5 * torch::sum(1 + log_var - mu.pow(2) - log_var.exp());
      // Free bits: no dimension is paid for below a limit.
      auto rates =
          (0.5 * (mu.pow(2) + log_var.exp() - log_var - 1)).mean(0).clamp_min(0.05);
      optimizer->zero_grad();
      run.backward(loss / batch.data.size(0) + rates.sum());
      optimizer->step();
      sum += loss.item<double>();
    }
    run.note("loss", sum / 23);
  }
  torch::NoGradGuard no_grad;
  run.note("made", decoder->forward(torch::randn({5, 2})));
  run.finish(encoder, mean, spread, decoder);
}

// Codes out of a book: the nearest one, straight through; the book follows the
// means of what is near, and codes that nothing is near to begin anew.
ZOO_MODEL(vector_quantization) {
  auto encoder = dense(2, 3), decoder = dense(3, 2);
  auto book = torch::randn({6, 3}), counts = torch::ones({6}), sums = book.clone();
  auto optimizer =
      run.optimizer<optim::Adam>(parameters(encoder, decoder), optim::AdamOptions(1e-2));
  run.prepare(encoder, decoder, *optimizer);
  auto loader = run.loader(rings(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto used = torch::zeros({6}, torch::kLong);
    for (auto& batch : *loader) {
      auto step = run.accumulate(encoder, decoder);
      auto code = encoder->forward(batch.data);
      auto nearest = torch::cdist(code, book).argmin(1);
      auto quantized = book.index_select(0, nearest);
      auto passed = code + (quantized - code).detach();
      auto loss = F::mse_loss(decoder->forward(passed), batch.data) +
          0.25 * F::mse_loss(code, quantized.detach());
      run.update(*optimizer, loss);
      torch::NoGradGuard no_grad;
      auto hot = F::one_hot(nearest, 6).to(torch::kDouble);
      counts.mul_(0.9).add_(hot.sum(0), 0.1);
      sums.mul_(0.9).add_(hot.t().mm(code.detach()), 0.1);
      book.copy_(sums / (counts + 1e-5).unsqueeze(1));
      used += torch::bincount(nearest, {}, 6);
      auto dead = (counts < 0.5).nonzero().squeeze(1);
      if (dead.numel() > 0) {
        auto rows = torch::randint(code.size(0), {dead.numel()}, torch::kLong);
        book.index_put_({dead}, code.detach().index({rows}));
        counts.index_fill_(0, dead, 1);
        sums.index_copy_(0, dead, book.index_select(0, dead));
      }
    }
    run.note("used", used);
    run.note("book", book);
  }
  run.finish(encoder, decoder);
}

// Noise of a level that is drawn for each sample; a moving average makes samples.
ZOO_MODEL(diffusion) {
  auto net = dense(3, 2);
  auto average = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  auto optimizer = run.optimizer<optim::AdamW>(net->parameters(), optim::AdamWOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(rings(), 6);
  const auto kept = torch::cumprod(1 - torch::linspace(1e-2, 0.3, 10), 0);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto t = torch::randint(0, 10, {batch.data.size(0)}, torch::kLong);
      auto noise = torch::randn_like(batch.data);
      auto level = kept.index({t}).view({-1, 1});
      auto noisy = level.sqrt() * batch.data + (1 - level).sqrt() * noise;
      auto drop = torch::rand({batch.data.size(0), 1}) < 0.1;
      auto time = (t.to(torch::kDouble) / 10).unsqueeze(1).masked_fill(drop, 0);
      auto guess = net->forward(torch::cat({noisy, time}, 1));
      // Levels with little noise count less, but all of them something.
      auto weight = torch::clamp(kept.gather(0, t) / (1 - kept.gather(0, t)), 0.1, 5);
      run.update(
          *optimizer, ((guess - noise).pow(2).mean(1) * weight).mean());
      torch::NoGradGuard no_grad;
      auto to = average->parameters();
      auto from = net->parameters();
      for (size_t i = 0; i < to.size(); ++i) {
        to[i].mul_(0.9).add_(from[i], 0.1);
      }
    }
  }
  torch::NoGradGuard no_grad;
  auto x = torch::randn({5, 2});
  for (int64_t t = 9; t >= 0; --t) {
    const auto level = kept[t];
    const auto before = t > 0 ? kept[t - 1] : torch::ones({});
    auto noise = average->forward(
        torch::cat({x, torch::full({5, 1}, static_cast<double>(t) / 10)}, 1));
    x = (x - (1 - level / before) / (1 - level).sqrt() * noise) /
        (level / before).sqrt();
    if (t > 0) {
      x += 0.1 * torch::randn_like(x);
    }
  }
  run.note("made", x);
  run.finish(net);
}

// Couplings and a mixing matrix, whose determinants are counted.
ZOO_MODEL(normalizing_flow) {
  auto scales = dense(1, 2), shifts = dense(1, 2);
  auto mix = torch::eye(2).add_(torch::randn({2, 2}), 0.1).requires_grad_();
  auto all = parameters(scales, shifts);
  all.push_back(mix);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(scales, shifts, *optimizer);
  auto loader = run.loader(rings(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(scales, shifts);
      auto z = batch.data + 0.05 * torch::randn_like(batch.data);
      auto log_det = z.new_zeros({z.size(0)});
      for (int64_t layer = 0; layer < 2; ++layer) {
        z = z.matmul(mix);
        log_det = log_det + std::get<1>(torch::slogdet(mix));
        auto halves = z.split(1, 1);
        auto s = scales->forward(halves[layer]).slice(1, 0, 1).tanh();
        auto moved = halves[1 - layer] * s.exp() +
            shifts->forward(halves[layer]).narrow(1, 0, 1);
        z = layer == 0 ? torch::hstack({halves[0], moved})
                       : torch::hstack({moved, halves[1]});
        log_det += s.squeeze(1);
      }
      auto log_prob =
          -0.5 * (z.pow(2) + std::log(2 * M_PI)).sum(1) + log_det;
      run.update(*optimizer, -log_prob.mean());
    }
  }
  run.note("mix", mix);
  run.finish(scales, shifts);
}

// Energies: samples are moved along gradients from where the last ones were.
ZOO_MODEL(energy_with_langevin) {
  auto energy = dense(2, 1);
  auto optimizer = run.optimizer<optim::SGD>(energy->parameters(), 0.02);
  run.prepare(energy, *optimizer);
  auto loader = run.loader(rings(), 6);
  auto kept = torch::randn({20, 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(energy);
      const auto n = batch.data.size(0);
      auto chosen = torch::randperm(20).slice(0, 0, n);
      auto moved = run.distribute(kept.index_select(0, chosen));
      for (int i = 0; i < 3; ++i) {
        moved = moved.detach().requires_grad_(true);
        auto force = torch::autograd::grad(
            {energy->forward(moved).sum()}, {moved})[0];
        moved = moved - 0.1 * force.clamp(-1, 1) + 0.05 * torch::randn_like(moved);
      }
      moved = moved.detach();
      kept.index_copy_(0, chosen, run.full(moved));
      auto here = energy->forward(batch.data), there = energy->forward(moved);
      run.update(
          *optimizer,
          here.mean() - there.mean() + 0.1 * (here.pow(2) + there.pow(2)).mean());
    }
    run.note("kept", kept);
  }
  run.finish(energy);
}

// What is hidden is said again; the decoder is the encoder turned round.
ZOO_MODEL(masked_autoencoder) {
  nn::Linear encoder(8, 4);
  auto bias = torch::zeros({8}).requires_grad_();
  auto all = encoder->parameters();
  all.push_back(bias);
  auto optimizer = run.optimizer<optim::Adagrad>(all, optim::AdagradOptions(0.05));
  run.prepare(encoder, *optimizer);
  auto loader = run.loader(Rows(torch::rand({23, 8}), torch::arange(23)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(encoder);
      // Of each sample three places, in random order.
      auto order = torch::argsort(torch::rand_like(batch.data), int64_t{1});
      auto hidden = torch::zeros_like(batch.data, torch::kBool)
                        .scatter_(1, order.slice(1, 0, 3), true);
      auto seen = batch.data.clone();
      seen.index_put_({hidden}, 0.5);
      auto code = torch::relu(encoder(seen));
      auto copy = code.mm(encoder->weight) + bias;
      auto loss = (copy - batch.data).index({hidden}).pow(2).mean() +
          1e-2 * code.abs().sum(1).mean();
      run.update(*optimizer, loss);
      run.note("hidden", hidden.sum(0));
    }
  }
  run.note("bias", bias);
  run.finish(encoder);
}

// Binary units, without autograd: contrastive divergence.
ZOO_MODEL(boltzmann_machine) {
  torch::NoGradGuard no_grad;
  auto weight = torch::randn({8, 5}) * 0.1, seen = torch::zeros({8}),
       hidden = torch::zeros({5});
  auto momentum = torch::zeros_like(weight);
  auto loader = run.loader(
      Rows(torch::bernoulli(torch::full({23, 8}, 0.4)), torch::arange(23)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    double error = 0;
    for (auto& batch : *loader) {
      auto step = run.accumulate();
      const double n = static_cast<double>(batch.data.size(0));
      auto up = torch::sigmoid(batch.data.matmul(weight) + hidden);
      auto down = torch::sigmoid(torch::addmm(seen, up.bernoulli(), weight.t()));
      auto again = torch::sigmoid(down.matmul(weight) + hidden);
      auto change = batch.data.t().mm(up) - down.t().mm(again);
      momentum.mul_(0.5).add_(change, 0.1 / n);
      weight += momentum;
      seen += 0.1 * (batch.data - down).sum(0) / n;
      hidden.add_((up - again).mean(0), 0.1);
      error += (batch.data - down).pow(2).sum().item<double>();
    }
    run.note("error", error);
  }
  run.note("weight", weight);
  run.note("seen", seen);
  run.note("hidden", hidden);
}

} // namespace zoo::generative
