// Norms: over the batch, the sample, groups of channels, and those that people
// write by hand with statistics that go on.

#include "zoo.h"

namespace zoo::norms {

Rows points() {
  auto x = torch::randn({17, 12}) * 2 + 1;
  return {x, (x.sum(1) > 12).to(torch::kLong)};
}

ZOO_MODEL(all_norms) {
  nn::Sequential lines(
      nn::Conv1d(nn::Conv1dOptions(3, 4, 3).padding(1).bias(false)),
      nn::BatchNorm1d(nn::BatchNormOptions(4).momentum(std::nullopt)),
      nn::Softplus(),
      nn::InstanceNorm1d(nn::InstanceNorm1dOptions(4).affine(true).track_running_stats(true)));
  nn::Sequential pictures(
      nn::Conv2d(nn::Conv2dOptions(3, 4, 1)),
      nn::GroupNorm(nn::GroupNormOptions(2, 4)),
      nn::LocalResponseNorm(nn::LocalResponseNormOptions(2)),
      nn::InstanceNorm2d(nn::InstanceNorm2dOptions(4)),
      nn::Flatten(),
      nn::LayerNorm(nn::LayerNormOptions({16}).elementwise_affine(true)),
      nn::Linear(nn::LinearOptions(16, 16).bias(false)),
      nn::BatchNorm1d(nn::BatchNormOptions(16).affine(false)));
  nn::Linear head(32, 2);
  auto all = parameters(lines, pictures, head);
  auto optimizer = run.optimizer<optim::SGD>(all, optim::SGDOptions(0.1).momentum(0.9));
  run.prepare(lines, pictures, head, *optimizer);
  auto loader = run.loader(points(), 5);
  auto test = run.loader<SequentialSampler>(points(), 6);
  const auto scores_of = [&](const Tensor& x) {
    const auto n = x.size(0);
    return head(torch::cat(
        {lines->forward(x.view({n, 3, 4})).flatten(1),
         pictures->forward(x.view({n, 3, 2, 2}))},
        1));
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto module : {lines, pictures}) {
      module->train();
    }
    for (auto& batch : *loader) {
      auto step = run.accumulate(lines, pictures, head);
      run.update(
          *optimizer, F::cross_entropy(scores_of(batch.data), batch.target));
    }
    for (auto module : {lines, pictures}) {
      module->eval();
    }
    torch::NoGradGuard no_grad;
    for (auto& batch : *test) {
      run.note("chances", scores_of(batch.data).softmax(1).select(1, 1));
    }
  }
  run.finish(lines, pictures, head);
}

/// The root of the mean square over the last dimension.
struct RMSNormImpl : nn::Module {
  explicit RMSNormImpl(int64_t width)
      : weight(register_parameter("weight", torch::ones({width}))) {}
  Tensor forward(const Tensor& x) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-6) * weight;
  }
  Tensor weight;
};
TORCH_MODULE(RMSNorm);

/// Batch norm as a person writes it, with buffers that are written in place.
struct OwnNormImpl : nn::Module {
  explicit OwnNormImpl(int64_t width)
      : gain(register_parameter("gain", torch::ones({width}))),
        mean(register_buffer("mean", torch::zeros({width}))),
        var(register_buffer("var", torch::ones({width}))),
        calls(register_buffer("calls", torch::tensor(0))) {}
  Tensor forward(const Tensor& x) {
    if (!is_training()) {
      return (x - mean) / (var + 1e-5).sqrt() * gain;
    }
    auto now = x.mean(0);
    auto spread = x.var(0, /*unbiased=*/false);
    {
      torch::NoGradGuard no_grad;
      calls += 1;
      const double weight = std::max(0.1, 1. / calls.item<double>());
      mean.lerp_(now.detach(), weight);
      var.mul_(1 - weight).add_(
          spread.detach() * x.size(0) / (x.size(0) - 1), weight);
    }
    return (x - now) / (spread + 1e-5).sqrt() * gain;
  }
  Tensor gain, mean, var, calls;
};
TORCH_MODULE(OwnNorm);

ZOO_MODEL(norms_by_hand) {
  nn::Sequential net(
      nn::Linear(nn::LinearOptions(12, 8).bias(false)),
      OwnNorm(8),
      nn::Mish(),
      nn::Linear(8, 8),
      RMSNorm(8),
      nn::PReLU(nn::PReLUOptions().num_parameters(8)),
      nn::Linear(8, 2));
  auto optimizer = run.optimizer<optim::Adam>(net->parameters(), 1e-2);
  run.prepare(net, *optimizer);
  auto loader = run.loader(points(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    net->train();
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      run.update(
          *optimizer, F::cross_entropy(net->forward(batch.data), batch.target));
    }
    net->eval();
    torch::NoGradGuard no_grad;
    run.note("eval", net->forward(torch::ones({2, 12})));
  }
  run.finish(net);
}

// Weights are divided by their largest singular value, which is looked for by one
// step of the power method in each forward pass.
ZOO_MODEL(spectral_norm) {
  nn::Linear first(12, 6), second(6, 2);
  std::vector<Tensor> vectors = {
      F::normalize(torch::randn({6}), F::NormalizeFuncOptions().dim(0)),
      F::normalize(torch::randn({2}), F::NormalizeFuncOptions().dim(0))};
  auto optimizer = run.optimizer<optim::SGD>(parameters(first, second), 0.1);
  run.prepare(first, second, *optimizer);
  auto loader = run.loader(points(), 5);
  const auto normed = [&](const Tensor& weight, Tensor& u) {
    Tensor v;
    {
      torch::NoGradGuard no_grad;
      v = F::normalize(weight.t().mv(u), F::NormalizeFuncOptions().dim(0));
      u = F::normalize(weight.mv(v), F::NormalizeFuncOptions().dim(0));
    }
    return weight / torch::dot(u, weight.mv(v));
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second);
      auto h = torch::relu(
          F::linear(batch.data, normed(first->weight, vectors[0]), first->bias));
      auto scores =
          torch::addmm(second->bias, h, normed(second->weight, vectors[1]).t());
      auto sign = (batch.target * 2 - 1).unsqueeze(1);
      auto loss = torch::relu(1 - scores.slice(1, 0, 1) * sign).mean() +
          torch::softplus(-scores.slice(1, 1) * sign).sum() / sign.numel();
      run.update(*optimizer, loss);
    }
    run.note("vector", vectors[0]);
  }
  run.finish(first, second);
}

// Features are made white over the batch, by the inverse root of the covariance.
ZOO_MODEL(whitening) {
  nn::Linear first(12, 4), second(4, 2);
  auto mean = torch::zeros({4}), cov = torch::eye(4);
  auto optimizer = run.optimizer<optim::SGD>(parameters(first, second), 0.1);
  run.prepare(first, second, *optimizer);
  auto loader = run.loader(points(), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second);
      auto h = first(batch.data);
      auto centred = h - h.mean(0, /*keepdim=*/true);
      auto covariance =
          centred.t().mm(centred) / (h.size(0) - 1) + 0.1 * torch::eye(4);
      auto factor = torch::linalg_cholesky(covariance);
      auto white = torch::linalg_solve_triangular(
                       factor, centred.t(), /*upper=*/false)
                       .t();
      run.update(
          *optimizer, F::cross_entropy(second(white), batch.target));
      torch::NoGradGuard no_grad;
      mean = 0.9 * mean + 0.1 * h.mean(0);
      cov.mul_(0.9).add_(covariance, 0.1);
    }
    run.note("mean", mean);
    run.note("covariance", cov);
    run.note("values", torch::linalg_eigvalsh(cov));
  }
  run.finish(first, second);
}

} // namespace zoo::norms
