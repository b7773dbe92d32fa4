// Tensors that share memory, tensors without elements, bytes, and second
// derivatives through layers.

#include "zoo.h"

#include <cmath>

namespace zoo::memory {

Rows samples() {
  auto x = torch::randn({17, 6});
  return {x, x.slice(1, 0, 3).argmax(1)};
}

// What is written is seen by all that share the memory, in whatever order views
// and writes come.
ZOO_MODEL(shared_memory) {
  torch::NoGradGuard no_grad;
  auto loader = run.loader<SequentialSampler>(samples(), 5);
  auto kept = torch::zeros({12, 6});
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    auto x = batch.data;
    const auto n = x.size(0);
    // Rows, columns, and views of views.
    auto detached = x.detach(), turned = x.t(), row = turned.select(1, 0);
    auto piece = row.slice(0, 2, 5), flat = x.view({-1}), wide = x.unsqueeze(1).expand({n, 2, 6});
    piece.mul_(10);
    flat.slice(0, 0, 3).add_(0.5);
    turned[4].copy_(turned[5]);
    detached.clamp_(-4, 4);
    x.unbind(0)[1].sub_(x.unbind(1)[0].mean());
    for (const auto& t : {x, detached, turned, row, piece, flat, wide}) {
      run.note("rows", t);
    }
    // Sums, which are written in a place that has no parts of sums.
    auto sum = x.t().mm(x);
    auto diagonal = sum.diagonal(), corner = sum.slice(0, 0, 2).slice(1, 0, 2), copy = sum.detach();
    diagonal.clamp_min_(1);
    corner.fill_(0.25);
    copy.sqrt_().nan_to_num_(0.1);
    sum.mul_(x.mean());
    corner.add_(x.sum(0).slice(0, 0, 2));
    diagonal[3] = x.max();
    for (const auto& t : {sum, diagonal, corner, copy}) {
      run.note("sums", t);
    }
    // Overlapping halves; shapes that change in place.
    auto halves = x.tensor_split(2, 1);
    halves[0].add_(halves[1], 0.5);
    halves[1].copy_(halves[0].flip(1));
    auto moved = x.clone();
    moved.t_().unsqueeze_(0).squeeze_(0).transpose_(0, 1).mul_(2);
    auto early = moved.select(0, 0);
    moved.resize_as_(x);
    moved.set_data(moved + 1);
    early.zero_();
    run.note("moved", moved);
    run.note("early", early);
    // A tensor that all have in full takes what is in parts.
    kept.slice(0, 0, n).copy_(x);
    kept.slice(0, 5, 5 + n).add_(x);
    kept.select(1, 3).narrow(0, 1, n).copy_(x.select(1, 0));
    kept[11] = x.mean(0);
    kept[10][2] = x.std();
    kept.index_put_({torch::arange(n) + 6, torch::arange(n) % 6}, x.diagonal().sum());
    auto same = kept.select(0, 0);
    same.addcmul_(x[0], x[1]);
    run.note("kept", kept);
    // Complex numbers and their halves.
    auto complex = torch::complex(x.slice(1, 0, 3).clone(), x.slice(1, 3).clone());
    torch::real(complex).mul_(2);
    torch::view_as_real(complex).select(2, 1).abs_();
    run.note("angles", complex.angle());
    run.note("sizes", torch::abs(complex.conj() * complex));
  }
  // Between batches, too.
  Tensor last;
  for (auto& batch : *loader) {
    auto step = run.accumulate();
    if (last.defined() && last.size(0) >= batch.data.size(0)) {
      last.slice(0, 0, batch.data.size(0)).add_(batch.data);
      run.note("last", last);
    }
    last = batch.data;
  }
}

// Masks that choose nothing, one row, or all; batches that are empty after a filter.
ZOO_MODEL(some_and_none) {
  nn::Linear net(6, 3);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto loader = run.loader(samples(), 5);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      auto y = net(batch.data);
      auto loss = F::cross_entropy(y, batch.target);
      int64_t found = 0;
      for (int64_t c = 0; c < 5; ++c) { // classes 3 and 4 are never there
        auto mask = batch.target == c;
        auto some = y.index({mask});
        found += some.size(0);
        loss = loss + some.sum() * 0.01 + y.masked_select(mask.unsqueeze(1)).pow(2).sum() * 0.01;
        auto kept = torch::cat({some, y.slice(0, 0, 0), y.narrow(0, n - 1, 1)});
        loss = loss + kept.mean() * 0.01;
        if (some.size(0) == 0) {
          continue;
        }
        loss = loss + some.var(0, /*unbiased=*/false).sum() * 0.1 + some.amax(0).mean() * 0.1 +
            some.index_select(0, torch::zeros({1}, torch::kLong)).sum() * 0.01;
      }
      auto first = torch::zeros({n}, torch::kBool);
      first[0] = true;
      auto last = torch::arange(n) == n - 1;
      loss = loss + y.index({first}).pow(2).sum() * 0.1 + y.index({last}).abs().sum() * 0.1 +
          y.index({first | last}).std() * 0.1 + y.index({torch::ones({n}, torch::kBool)}).mean() +
          F::mse_loss(y.index({first}), batch.data.index({first}).slice(1, 0, 3)) * 0.1 +
          y.index({torch::tensor({n - 1, int64_t{0}, n - 1})}).prod() * 0.01 +
          y.slice(0, 1, n, 3).sum() * 0.01 + y.slice(0, n - 2).flip(0).cumsum(0).mean() * 0.01 +
          y.index({torch::where(batch.target == 7)[0]}).sum() + y.slice(0, n).sum();
      run.update(*optimizer, loss);
      run.note("found", static_cast<double>(found));
      run.note("none", (batch.target == 9).any());
      run.note("nonzero", (batch.target == 9).nonzero());
      run.note("first", first.nonzero());
      run.note("rows", torch::argwhere(batch.data > 1));
    }
  }
  run.finish(net);
}

// Bytes, as pictures come, and counts in small integers.
ZOO_MODEL(bytes_and_small_numbers) {
  nn::Conv2d conv(nn::Conv2dOptions(1, 3, 3));
  nn::Linear head(3 * 16, 4);
  auto optimizer = run.optimizer<optim::SGD>(parameters(conv, head), 0.05);
  run.prepare(conv, head, *optimizer);
  auto pictures = torch::randint(256, {17, 6, 6}, torch::kByte);
  auto loader = run.loader(
      Rows(pictures, (torch::arange(17) % 4).to(torch::kInt)), 5);
  auto histogram = torch::zeros({8}, torch::kLong);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(conv, head);
      auto x = batch.data.unsqueeze(1).to(torch::kDouble).div_(255).sub_(0.5).div_(0.25);
      auto target = batch.target.to(torch::kLong);
      auto scores = head(torch::relu(conv(x)).flatten(1));
      run.update(*optimizer, F::cross_entropy(scores, target));
      auto guess = scores.argmax(1).to(torch::kInt);
      run.note("same", (guess == batch.target).sum());
      run.note("bits", batch.data.bitwise_and(15).bitwise_xor(3).sum(torch::kLong));
      run.note("shifted", batch.data.bitwise_right_shift(4).to(torch::kLong).sum({1, 2}));
      run.note("wrapped", (batch.data + 200).amax(0));
      run.note("sum of bytes", batch.data.sum());
      run.note("mean", batch.data.to(torch::kFloat).mean().to(torch::kDouble) * 0 + x.mean());
      run.note("halved", batch.target.div(2, "floor").cumsum(0));
      run.note("remainder", (batch.target - 5) % 3);
      run.note("products", batch.target.prod() + batch.target.max() * batch.target.min());
      run.note("float", batch.target / 3.);
      histogram += torch::bincount(batch.data.flatten().div(32, "trunc").to(torch::kLong), {}, 8);
      histogram.scatter_add_(0, target, torch::ones_like(target));
      run.note("any", (batch.data > 250).any(2).all(1));
    }
  }
  run.note("histogram", histogram);
  run.finish(conv, head);
}

// The gradient's norm through convolutions, norms, pooling and attention.
ZOO_MODEL(second_derivatives) {
  nn::Sequential net(
      nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)),
      nn::BatchNorm2d(4),
      nn::Softplus(),
      nn::MaxPool2d(2),
      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 2)),
      nn::GroupNorm(nn::GroupNormOptions(3, 3)),
      nn::AvgPool2d(2),
      nn::Dropout(0.2),
      nn::Flatten(),
      nn::LayerNorm(nn::LayerNormOptions({12})),
      nn::Linear(12, 3));
  nn::Linear query(3, 3), key(3, 3);
  auto optimizer = run.optimizer<optim::SGD>(parameters(net, query, key), 0.02);
  run.prepare(net, query, key, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 2, 6, 6}), torch::arange(17) % 3), 5);
  for (auto& batch : *loader) {
    auto step = run.accumulate(net, query, key);
    auto x = batch.data.clone().requires_grad_();
    auto scores = net->forward(x);
    auto mixed = (query(scores).mm(key(scores).t())).softmax(1).mm(scores);
    auto loss = F::cross_entropy(mixed, batch.target);
    auto first = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
    auto by_weight = torch::autograd::grad({loss}, net->parameters(), {}, true, true);
    auto penalty = first.flatten(1).norm(2, 1).pow(2).sum();
    for (const auto& g : by_weight) {
      penalty = penalty + 0.1 * g.pow(2).sum();
    }
    run.update(*optimizer, loss + penalty);
    run.note("penalty", penalty);
    // Power iteration for the direction in which the loss bends most (VAT).
    net->eval();
    auto direction = torch::randn_like(batch.data);
    for (int i = 0; i < 2; ++i) {
      direction = (F::normalize(direction.flatten(1)) * 0.1).view_as(batch.data).detach().requires_grad_();
      auto clean = net->forward(batch.data).softmax(1).detach();
      auto moved = net->forward(batch.data + direction).log_softmax(1);
      auto distance = F::kl_div(moved, clean, F::KLDivFuncOptions().reduction(torch::kBatchMean));
      direction = torch::autograd::grad({distance}, {direction})[0];
    }
    run.note("direction", F::normalize(direction.flatten(1)).abs().sum());
    net->train();
  }
  run.finish(net, query, key);
}

} // namespace zoo::memory
