// Algorithms without a network or an optimizer, and how predictions are counted.

#include "zoo.h"

#include <array>
#include <map>

namespace zoo::classic {

Rows clouds(int64_t rows) {
  auto y = torch::arange(rows) * 7 % 3;
  auto x = torch::randn({rows, 4});
  x.select(1, 0).add_(y * 3);
  x.select(1, 1).sub_(y);
  return {x, y};
}

// Assignments and means, over all batches, until nothing changes.
ZOO_MODEL(k_means) {
  torch::NoGradGuard no_grad;
  auto data = clouds(23);
  auto centers = data.data.index({torch::tensor({0, 1, 2})}).clone();
  auto loader = run.loader<SequentialSampler>(data, 5);
  std::vector<int64_t> before;
  for (int pass = 0; pass < 4; ++pass) {
    auto sums = torch::zeros_like(centers);
    auto counts = torch::zeros({3});
    double inertia = 0;
    std::vector<int64_t> assigned;
    for (auto& batch : *loader) {
      auto step = run.accumulate();
      auto [distance, nearest] = torch::cdist(batch.data, centers).min(1);
      for (int64_t c = 0; c < 3; ++c) {
        auto mask = nearest == c;
        sums[c] += batch.data.index({mask}).sum(0);
        counts[c] += mask.sum();
      }
      inertia += distance.pow(2).sum().item<double>();
      for (int64_t i = 0; i < nearest.size(0); ++i) {
        assigned.push_back(nearest[i].item<int64_t>());
      }
    }
    run.note("inertia", inertia);
    run.note("counts", counts);
    if (assigned == before) {
      break;
    }
    before = assigned;
    centers = torch::where(
        (counts > 0).unsqueeze(1), sums / counts.clamp_min(1).unsqueeze(1), centers);
  }
  run.note("centers", centers);
}

// Expectation and maximization for a mixture of Gaussians.
ZOO_MODEL(gaussian_mixture) {
  torch::NoGradGuard no_grad;
  auto data = clouds(23);
  auto x = run.distribute(data.data);
  auto means = data.data.slice(0, 0, 3).clone();
  auto covariances = torch::eye(4).repeat({3, 1, 1});
  auto log_weights = torch::full({3}, -std::log(3.));
  for (int pass = 0; pass < 4; ++pass) {
    auto factors = torch::linalg_cholesky(covariances);
    auto rest = x.unsqueeze(1) - means; // rows, 3, 4
    auto solved = torch::linalg_solve_triangular(factors, rest.permute({1, 2, 0}), false);
    auto log_chance = -0.5 * solved.pow(2).sum(1).t() -
        factors.diagonal(0, 1, 2).log().sum(1) + log_weights;
    auto total = torch::logsumexp(log_chance, 1, /*keepdim=*/true);
    run.note("likelihood", total.mean());
    auto share = (log_chance - total).exp();
    auto counts = share.sum(0) + 1e-9;
    log_weights = (counts / x.size(0)).log();
    means = share.t().mm(x) / counts.unsqueeze(1);
    rest = x.unsqueeze(1) - means;
    covariances =
        torch::einsum("nk,nki,nkj->kij", {share, rest, rest}) / counts.view({-1, 1, 1}) +
        0.1 * torch::eye(4);
  }
  run.note("means", means);
  run.note("covariances", covariances);
  run.note("weights", log_weights);
}

// Tensors that require gradients, and a step written by hand.
ZOO_MODEL(raw_sgd) {
  auto w = torch::randn({4, 3}).requires_grad_();
  auto b = torch::zeros({3}).requires_grad_();
  auto velocity = torch::zeros_like(w);
  auto loader = run.loader(clouds(17), 5);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate();
      auto scores = batch.data.matmul(w) + b;
      auto loss = -(scores.log_softmax(1).gather(1, batch.target.view({-1, 1}))).mean();
      run.backward(loss);
      run.note("loss", loss);
      torch::NoGradGuard no_grad;
      velocity.mul_(0.5).add_(w.grad());
      w -= 0.1 * velocity;
      b.data() -= 0.1 * b.grad();
      w.mutable_grad().zero_();
      b.grad().zero_();
    }
  }
  run.note("w", w);
  run.note("b", b);
}

// The same with gradients that are asked for, and a line search by their norm.
ZOO_MODEL(asked_gradients) {
  std::vector<Tensor> weights = {
      torch::randn({4, 3}).requires_grad_(), torch::zeros({3}).requires_grad_()};
  auto loader = run.loader(clouds(17), 5);
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    const auto loss_of = [&](const std::vector<Tensor>& w) {
      return F::cross_entropy(torch::addmm(w[1], batch.data, w[0]), batch.target);
    };
    auto loss = loss_of(weights);
    auto gradients = torch::autograd::grad({loss}, weights);
    double length = 1, square = 0;
    for (auto& g : gradients) {
      square += g.pow(2).sum().item<double>();
    }
    torch::NoGradGuard no_grad;
    const double start = loss.item<double>();
    std::vector<Tensor> tried;
    while (length > 1e-3) {
      tried.clear();
      for (size_t i = 0; i < weights.size(); ++i) {
        tried.push_back(weights[i] - length * gradients[i]);
      }
      if (loss_of(tried).item<double>() <= start - 0.3 * length * square) {
        break;
      }
      length /= 2;
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i].set_data(tried[i]);
    }
    run.note("loss", start);
    run.note("length", length);
  }
  run.note("w", weights[0]);
  run.note("b", weights[1]);
}

// Normal equations that are summed up over the batches, and their singular values.
ZOO_MODEL(least_squares) {
  torch::NoGradGuard no_grad;
  auto data = clouds(23);
  auto loader = run.loader<SequentialSampler>(data, 5);
  auto a = torch::zeros({5, 5});
  Tensor b;
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    auto x = torch::cat({batch.data, torch::ones({batch.data.size(0), 1})}, 1);
    a += x.t().mm(x);
    auto now = x.t().mv(batch.target.to(torch::kDouble));
    b = b.defined() ? b + now : now;
    run.note("singular values", torch::linalg_svdvals(x));
    run.note("rank", torch::linalg_matrix_rank(x));
  }
  run.note("weights", torch::linalg_solve(a + 0.1 * torch::eye(5), b));
  // All rows at once: principal axes up to their sign, and a pseudo-inverse.
  auto x = run.distribute(data.data);
  auto centred = x - x.mean(0);
  auto [u, s, v] = torch::linalg_svd(centred, /*full_matrices=*/false);
  run.note("axes", v.abs());
  run.note("places", (u * s).abs());
  run.note("inverse", torch::linalg_pinv(x));
  run.note("solved", std::get<0>(torch::linalg_lstsq(x, run.distribute(data.target.to(torch::kDouble).unsqueeze(1)))));
  run.note("correlation", torch::corrcoef(x.t()));
  run.note("quantiles", torch::quantile(x, torch::tensor({0.1, 0.5, 0.9}), 0));
}

// A support vector machine on hinge losses of the worst rows, with averaging.
ZOO_MODEL(support_vectors) {
  auto w = torch::zeros({4, 3}).requires_grad_();
  auto average = torch::zeros({4, 3});
  auto optimizer = run.optimizer<optim::SGD>(
      std::vector<Tensor>{w}, optim::SGDOptions(0.1).weight_decay(0.01));
  run.prepare(*optimizer);
  auto loader = run.loader(clouds(23), 6);
  int64_t steps = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate();
      auto scores = batch.data.mm(w);
      auto own = scores.gather(1, batch.target.unsqueeze(1));
      auto margins = (scores - own + 1).scatter(1, batch.target.unsqueeze(1), 0);
      auto worst = margins.clamp_min(0).amax(1);
      const auto k = (worst.size(0) + 1) / 2;
      run.update(*optimizer, std::get<0>(worst.topk(k)).mean());
      ++steps;
      average.add_((w.detach() - average) / steps);
      run.note("support", (worst > 0).nonzero());
    }
  }
  run.note("w", w);
  run.note("average", average);
}

// Five folds, each with a model of its own, and what they say together.
ZOO_MODEL(folds) {
  auto data = clouds(20);
  auto order = torch::randperm(20);
  auto votes = torch::zeros({20, 3});
  double sum = 0;
  for (int64_t fold = 0; fold < 4; ++fold) {
    auto held = order.slice(0, fold * 5, (fold + 1) * 5);
    auto mask = torch::ones({20}, torch::kBool);
    mask.index_put_({held}, false);
    nn::Linear net(4, 3);
    auto optimizer = run.optimizer<optim::Adam>(net->parameters(), optim::AdamOptions(5e-2));
    run.prepare(net, *optimizer);
    auto loader = run.loader(Rows(data.data.index({mask}), data.target.index({mask})), 4);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : *loader) {
        auto step = run.accumulate(net);
        run.update(*optimizer, F::cross_entropy(net(batch.data), batch.target));
      }
    }
    net->eval();
    torch::NoGradGuard no_grad;
    auto test = run.loader<SequentialSampler>(
        Rows(data.data.index_select(0, held), held), 3);
    for (auto& batch : *test) {
      auto scores = net(batch.data).softmax(1);
      votes.index_add_(0, batch.target, scores);
      sum += F::nll_loss(scores.log(), data.target.index({batch.target})).item<double>() *
          static_cast<double>(batch.data.size(0));
    }
    run.finish(net);
  }
  run.note("loss", sum / 20);
  run.note("votes", votes);
}

// Counts of all kinds, as programs print them.
ZOO_MODEL(counting) {
  nn::Linear net(4, 3);
  run.prepare(net);
  net->eval();
  torch::NoGradGuard no_grad;
  auto loader = run.loader<SequentialSampler>(clouds(23), 6);
  std::array<std::array<int64_t, 3>, 3> confusion{};
  auto matrix = torch::zeros({3, 3}, torch::kLong);
  std::map<int64_t, int64_t> histogram;
  std::vector<Tensor> all_scores, all_targets;
  int64_t correct = 0, among_two = 0, total = 0;
  double worst = 0;
  for (auto& batch : *loader) {
    auto scores = net(batch.data).softmax(1);
    auto guess = scores.argmax(1, /*keepdim=*/true);
    correct += guess.eq(batch.target.view_as(guess)).sum().item<int64_t>();
    among_two += std::get<1>(scores.topk(2, 1))
                     .eq(batch.target.unsqueeze(1))
                     .any(1)
                     .sum()
                     .item<int>();
    total += batch.target.size(0);
    for (int64_t i = 0; i < batch.target.size(0); ++i) {
      const auto truth = batch.target[i].item<int64_t>();
      const auto said = guess[i][0].item<int64_t>();
      ++confusion[truth][said];
      ++histogram[static_cast<int64_t>(scores[i].max().item<double>() * 10)];
    }
    matrix.index_put_(
        {batch.target, guess.squeeze(1)}, torch::ones({1}, torch::kLong),
        /*accumulate=*/true);
    worst = std::max(worst, (1 - scores.amax(1)).max().item<double>());
    all_scores.push_back(scores.index({Slice(), 1}));
    all_targets.push_back(batch.target == 1);
  }
  for (const auto& row : confusion) {
    for (const auto count : row) {
      run.note("confusion", static_cast<double>(count));
    }
  }
  for (const auto& [bin, count] : histogram) {
    run.note("bin " + std::to_string(bin), static_cast<double>(count));
  }
  run.note("matrix", matrix);
  run.note("correct", static_cast<double>(correct) / static_cast<double>(total));
  run.note("among two", static_cast<double>(among_two));
  run.note("worst", worst);
  // The area under the curve, from all scores sorted.
  auto scores = torch::cat(all_scores);
  auto truth = torch::cat(all_targets);
  auto order = scores.argsort(0, /*descending=*/true);
  auto hits = truth.index_select(0, order).to(torch::kDouble).cumsum(0);
  auto misses = truth.index_select(0, order).logical_not().cumsum(0).to(torch::kDouble);
  run.note("area", torch::trapezoid(hits / hits[-1], misses / misses[-1]));
  run.note("precision", (hits / (torch::arange(truth.size(0)) + 1)).index({truth.index({order})}).mean());
  run.note("histogram", torch::histc(scores, 5, 0, 1));
  run.note("buckets", torch::bucketize(scores, torch::linspace(0, 1, 6)));
  auto [values, counts] = [&] {
    auto unique = torch::unique_consecutive((scores * 10).floor(), false, true);
    return std::make_pair(std::get<0>(unique), std::get<2>(unique));
  }();
  run.note("values", values);
  run.note("repeated", counts);
}

} // namespace zoo::classic
