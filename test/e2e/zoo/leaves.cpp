// Tensors that are made out of batches and learn, parameters that batches set,
// gradients that are put where optimizers look, generators of one's own.

#include "zoo.h"

#include <ATen/Context.h>

#include <algorithm>
#include <numeric>

namespace zoo::leaves {

Rows samples() {
  auto x = torch::randn({17, 6});
  return {x, x.slice(1, 0, 3).argmax(1)};
}

nn::Sequential dense() {
  return nn::Sequential(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 3));
}

// An optimizer of its own for what is made of each batch.
ZOO_MODEL(inputs_that_learn) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (auto& batch : *loader) {
    auto step = run.accumulate(net);
    auto moved = batch.data.clone().requires_grad_();
    auto shift = torch::zeros({6}).requires_grad_();
    auto of_inputs = run.optimizer<optim::Adam>(
        std::vector<Tensor>{moved, shift}, optim::AdamOptions(5e-2));
    run.prepare(*of_inputs);
    for (int i = 0; i < 3; ++i) {
      of_inputs->zero_grad();
      auto loss = -F::cross_entropy(net->forward(moved + shift), batch.target) +
          (moved - batch.data).pow(2).sum();
      run.backward(loss);
      of_inputs->step();
      torch::NoGradGuard no_grad;
      moved.clamp_(-2, 2);
      run.note("inner", loss);
    }
    run.note("moved", moved);
    run.note("shift", shift);
    run.update(*optimizer, F::cross_entropy(net->forward(moved.detach()), batch.target));
  }
  run.finish(net);
}

// What the batch's gradient says of each number in it.
ZOO_MODEL(saliency) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  auto importance = torch::zeros({6});
  for (auto& batch : *loader) {
    auto step = run.accumulate(net);
    batch.data.requires_grad_();
    auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    optimizer->zero_grad();
    run.backward(loss);
    run.note("gradient", batch.data.grad());
    importance += (batch.data.grad() * batch.data).abs().sum(0).detach();
    optimizer->step();
    // Fisher's information: the gradient of each sample by itself.
    for (int64_t i = 0; i < batch.data.size(0); ++i) {
      net->zero_grad();
      auto one = F::cross_entropy(
          net->forward(batch.data.detach()[i].unsqueeze(0)), batch.target[i].unsqueeze(0));
      run.backward(one);
      run.note("of one", net->parameters()[0].grad().pow(2).sum());
    }
    // Integrated over a path from nothing.
    auto path = torch::linspace(0, 1, 4).view({-1, 1, 1}) * batch.data.detach();
    path.requires_grad_();
    auto along = torch::autograd::grad({net->forward(path.flatten(0, 1)).sum()}, {path})[0];
    run.note("integrated", (along.mean(0) * batch.data.detach()).sum(1));
  }
  run.note("importance", importance);
  run.finish(net);
}

// The first batch says where parameters begin; others are replaced later.
ZOO_MODEL(parameters_from_data) {
  auto net = dense();
  auto shift = torch::zeros({6}).requires_grad_(), scale = torch::ones({6}).requires_grad_();
  auto all = net->parameters();
  all.insert(all.end(), {shift, scale});
  auto optimizer = run.optimizer<optim::SGD>(all, optim::SGDOptions(0.05).momentum(0.5));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  bool first = true;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      if (first) {
        first = false;
        torch::NoGradGuard no_grad;
        shift.data().copy_(-batch.data.mean(0));
        scale.copy_(1 / (batch.data.std(0) + 1e-3));
        // Orthogonal to what the samples span.
        auto u = std::get<0>(torch::linalg_qr(batch.data.t().mm(batch.data) + torch::eye(6)));
        net->parameters()[0].slice(0, 0, 6).copy_(u.abs());
      }
      auto scores = net->forward((batch.data + shift) * scale);
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
      torch::NoGradGuard no_grad;
      // Weights that have become small begin anew along the worst sample.
      auto worst = F::cross_entropy(
                       scores.detach(), batch.target,
                       F::CrossEntropyFuncOptions().reduction(torch::kNone))
                       .argmax();
      auto weight = net->parameters()[0];
      auto least = weight.norm(2, 1).argmin();
      weight.index_put_({least}, batch.data.index({worst}) * 0.3);
      weight[7].lerp_(batch.data[0], 0.1);
      run.note("worst", worst);
    }
  }
  run.note("shift", shift);
  run.note("scale", scale);
  run.finish(net);
}

// Gradients that are asked for and put where the optimizer looks.
ZOO_MODEL(gradients_by_hand) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto all = net->parameters();
      auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
      auto gradients = torch::autograd::grad({loss}, all);
      auto norm = torch::zeros({});
      for (const auto& g : gradients) {
        norm += g.pow(2).sum();
      }
      for (size_t i = 0; i < all.size(); ++i) {
        // Signs of some, whole ones of others, centred.
        auto g = gradients[i];
        g = i % 2 == 0 ? g - g.mean(0, true) : g.sign() * norm.sqrt() * 0.1;
        all[i].mutable_grad() = run.full(g).clone();
      }
      optimizer->step();
      run.note("loss", loss);
      run.note("norm", norm.sqrt());
    }
  }
  run.finish(net);
}

// Generators that the program has made, beside the usual one.
ZOO_MODEL(own_generators) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  auto generator = run.generator(12);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      auto x = batch.data + 0.1 * torch::randn({n, 6}, generator);
      x = x * torch::bernoulli(torch::full_like(x, 0.8), generator);
      x = x + torch::empty_like(x).normal_(0, 0.05, generator) +
          torch::zeros_like(x).uniform_(-0.05, 0.05, generator);
      x = x.index({torch::randperm(n, generator).argsort()});
      auto scores = net->forward(x);
      auto drawn = torch::multinomial(scores.detach().softmax(1), 1, false, generator);
      run.update(
          *optimizer,
          F::cross_entropy(scores, batch.target) +
              0.1 * F::cross_entropy(scores, drawn.squeeze(1)));
      run.note("drawn", drawn);
      if (epoch == 0) {
        // The usual one is set back in the middle, as programs do that want the
        // same noise again.
        auto usual = at::globalContext().defaultGenerator(batch.data.device());
        auto state = usual.get_state();
        auto first = torch::randn_like(batch.data);
        usual.set_state(state);
        run.note("again", (first - torch::randn_like(batch.data)).abs().max());
      }
    }
    run.note("state", torch::randint(1000, {3}, generator));
  }
  run.finish(net);
}

// Sums that go on as tensors; what decides is asked of tensors in all ways.
ZOO_MODEL(running_values) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), optim::SGDOptions(0.3).momentum(0.9));
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  Tensor smooth, best = torch::full({}, 1e9);
  auto total = torch::zeros({}), counts = torch::zeros({3}, torch::kLong);
  for (int epoch = 0; epoch < 3; ++epoch) {
    auto sum = torch::zeros({1});
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto scores = net->forward(batch.data);
      auto losses = F::cross_entropy(
          scores, batch.target, F::CrossEntropyFuncOptions().reduction(torch::kNone));
      auto loss = losses.mean();
      smooth = smooth.defined() ? smooth * 0.9 + loss.detach() * 0.1 : loss.detach();
      total += losses.detach().sum();
      sum.add_(loss.detach(), static_cast<double>(batch.data.size(0)));
      counts += F::one_hot(scores.argmax(-1), 3).sum(0);
      best = torch::minimum(best, loss.detach());
      if (torch::isnan(loss).any().item<bool>() || !torch::isfinite(scores).all().item<bool>()) {
        continue;
      }
      if ((scores.softmax(1).amax(1) > 0.5).all().item<bool>() || loss.lt(smooth).item<bool>()) {
        loss = loss + 0.01 * scores.pow(2).mean();
      }
      if (torch::allclose(scores, torch::zeros_like(scores)) || batch.target.equal(scores.argmax(1)) ||
          scores.sum().is_nonzero() == false) {
        loss = loss * 2;
      }
      run.update(*optimizer, loss / (1 + loss.detach() - loss.item<double>()));
    }
    run.note("smooth", smooth);
    run.note("sum", sum.item<double>() / 17);
    run.note("total", total / (17 * (epoch + 1)));
    run.note("best", best);
    run.note("counts", counts);
  }
  run.finish(net);
}

// The easiest samples first: what all losses say, sorted by the program.
ZOO_MODEL(curriculum) {
  auto net = dense();
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.2);
  run.prepare(net, *optimizer);
  auto data = samples();
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::pair<double, int64_t>> losses;
    {
      torch::NoGradGuard no_grad;
      auto loader = run.loader<SequentialSampler>(data, 6);
      int64_t i = 0;
      for (auto& batch : *loader) {
        auto step = run.accumulate(net);
        auto now = F::cross_entropy(
            net->forward(batch.data), batch.target,
            F::CrossEntropyFuncOptions().reduction(torch::kNone));
        for (int64_t r = 0; r < now.numel(); ++r) {
          losses.emplace_back(now[r].item<double>(), i++);
        }
      }
    }
    std::sort(losses.begin(), losses.end());
    std::vector<int64_t> order;
    for (const auto& loss : losses) {
      order.push_back(loss.second);
    }
    for (size_t at = 0; at + 5 <= order.size(); at += 5) {
      auto rows = torch::tensor(std::vector<int64_t>(order.begin() + at, order.begin() + at + 5));
      auto x = run.distribute(data.data.index_select(0, rows));
      auto y = run.distribute(data.target.index_select(0, rows));
      run.update(*optimizer, F::cross_entropy(net->forward(x), y));
    }
    run.note("order", torch::tensor(order));
  }
  run.finish(net);
}

// Batches of one, of all, without the rest; workers; evaluation that needs no
// graph at all.
ZOO_MODEL(batches_of_all_sizes) {
  nn::Sequential net(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 3));
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  using Options = torch::data::DataLoaderOptions;
  auto data = samples();
  auto all = run.loader(data, Options(17));
  auto whole = run.loader(data, Options(5).drop_last(true).workers(2));
  auto one = run.loader<SequentialSampler>(data, Options(1));
  auto normed = run.loader<SequentialSampler>(
      Rows(data.data.view({17, 2, 3}), data.target)
          .map(torch::data::transforms::Normalize<>(0.5, 2.))
          .map(torch::data::transforms::Lambda<torch::data::Example<>>(
              [](torch::data::Example<> example) {
                return torch::data::Example<>(
                    example.data.flatten() + example.target, example.target);
              })),
      Options(6));
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->train();
    for (auto* loader : {&all, &whole}) {
      for (auto& batch : **loader) {
        auto step = run.accumulate(net);
        run.update(*optimizer, F::cross_entropy(net->forward(batch.data), batch.target));
      }
    }
    for (auto& batch : *normed) {
      auto step = run.accumulate(net);
      run.update(*optimizer, F::cross_entropy(net->forward(batch.data), batch.target));
    }
    net->eval();
    torch::InferenceMode inference;
    int64_t correct = 0;
    for (auto& batch : *one) {
      auto scores = net->forward(batch.data);
      correct += scores.argmax(1).eq(batch.target).sum().item<int64_t>();
    }
    for (auto& batch : *all) {
      run.note("scores", net->forward(batch.data).log_softmax(1));
    }
    run.note("correct", static_cast<double>(correct));
  }
  run.finish(net);
}

// A factor that some samples do not have: the program catches the error and tries
// again with more on the diagonal.
ZOO_MODEL(errors_that_are_caught) {
  torch::NoGradGuard no_grad;
  auto loader = run.loader<SequentialSampler>(samples(), 6);
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    const auto n = batch.data.size(0);
    auto a = batch.data.slice(1, 0, 4).view({n, 2, 2});
    auto symmetric = a + a.mT();
    double more = 0;
    Tensor factor;
    while (!factor.defined()) {
      try {
        factor = torch::linalg_cholesky(symmetric + more * torch::eye(2));
      } catch (const c10::Error&) {
        more = more == 0 ? 0.5 : more * 2;
      }
    }
    run.note("more", more);
    run.note("factor", factor);
  }
}

} // namespace zoo::leaves
