// Layers and functions that are seldom used, each where it changes the loss.

#include "zoo.h"

namespace zoo::layers {

Rows images() {
  auto x = torch::randn({17, 2, 8, 8});
  return {x, torch::arange(17) * 5 % 3};
}

ZOO_MODEL(all_poolings) {
  nn::Conv2d body(nn::Conv2dOptions(2, 4, 3).padding(1).padding_mode(torch::kCircular));
  nn::Linear head(4 * 10, 3);
  auto optimizer = run.optimizer<optim::SGD>(parameters(body, head), 0.05);
  run.prepare(body, head, *optimizer);
  auto loader = run.loader(images(), 6);
  for (auto& batch : *loader) {
    auto step = run.accumulate(body, head);
    auto h = body(batch.data);
    auto [largest, places] = F::max_pool2d_with_indices(h, F::MaxPool2dFuncOptions(2).stride(2));
    auto unpooled = F::max_unpool2d(largest, places, F::MaxUnpool2dFuncOptions(2).stride(2));
    auto [fraction, chosen] = F::fractional_max_pool2d_with_indices(
        h, F::FractionalMaxPool2dFuncOptions(2).output_size(torch::ExpandingArray<2>(3)));
    auto [adaptive, where] = F::adaptive_max_pool2d_with_indices(
        h, F::AdaptiveMaxPool2dFuncOptions({1, 3}));
    auto powers = F::lp_pool2d(h.abs() + 0.1, F::LPPool2dFuncOptions(2, 4));
    auto padded = F::avg_pool2d(
        h, F::AvgPool2dFuncOptions(3).stride(3).padding(1).count_include_pad(false));
    auto wide = F::interpolate(
        h, F::InterpolateFuncOptions().size(std::vector<int64_t>{5, 5}).mode(torch::kBicubic).align_corners(true));
    auto line = F::interpolate(
        h.flatten(2), F::InterpolateFuncOptions().size(std::vector<int64_t>{7}).mode(torch::kLinear).align_corners(false));
    auto area = F::interpolate(h, F::InterpolateFuncOptions().size(std::vector<int64_t>{3, 2}).mode(torch::kArea));
    auto features = torch::cat(
        {unpooled.sum({2, 3}), fraction.mean({2, 3}), adaptive.flatten(1).slice(1, 0, 8),
         powers.mean({2, 3}), padded.amax({2, 3}), wide.select(2, 0).sum(2), line.std(2), area.flatten(1).slice(1, 0, 8)},
        1);
    run.update(*optimizer, F::cross_entropy(head(features), batch.target));
    run.note("places", places.sum({1, 2, 3}));
    run.note("chosen", chosen.sum({1, 2, 3}));
    run.note("where", where.flatten(1));
  }
  run.finish(body, head);
}

ZOO_MODEL(all_activations) {
  nn::Linear body(6, 12), head(12, 3);
  nn::PReLU slope;
  nn::Bilinear both(nn::BilinearOptions(6, 3, 3));
  auto optimizer = run.optimizer<optim::SGD>(parameters(body, head, slope, both), 0.05);
  run.prepare(body, head, slope, both, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 6}), torch::arange(17) % 3), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(body, head);
      auto h = body(batch.data);
      h = h + F::celu(h) + F::elu(h) + F::selu(h) + F::gelu(h) + F::silu(h) + F::mish(h) +
          F::relu6(h) + F::softplus(h) + F::softsign(h) + F::tanhshrink(h) + F::hardshrink(h) +
          F::softshrink(h) + F::logsigmoid(h) + F::leaky_relu(h) + slope(h) +
          F::hardtanh(h) + torch::hardswish(h) + torch::hardsigmoid(h) + F::softmin(h, 1) +
          F::threshold(h, F::ThresholdFuncOptions(0.1, -0.1)) + F::glu(torch::cat({h, -h}, 1), 1);
      h = torch::sinc(h / 20) + torch::erf(h / 20) + torch::expm1(h / 20) + torch::log1p(h.abs()) +
          torch::atan2(h, h.roll(1, 1) + 3) + torch::hypot(h, h.flip(1)) / 20 + torch::logit(h.sigmoid(), 1e-6) / 20 +
          torch::xlogy(h.abs(), h.abs() + 1) / 20 + torch::special_entr(h.sigmoid()) + torch::lgamma(h.abs() + 1) / 20 +
          torch::digamma(h.abs() + 1) / 20 + torch::i0(h / 20) + torch::frac(h) + torch::remainder(h, 0.7) +
          torch::fmod(h, 0.9) + torch::nan_to_num(h / 20) + torch::copysign(h, h.roll(1, 0)) / 20 +
          torch::heaviside(h.detach(), torch::tensor(0.5)) + torch::ldexp(h / 20, torch::tensor(1)) +
          torch::float_power(h.abs() / 20, 1.5) + torch::deg2rad(h) + torch::fmax(h / 20, h.roll(1, 0) / 20) +
          torch::fake_quantize_per_tensor_affine(h / 20, 0.1, 0, -128, 127);
      auto scores = head(h) + both(batch.data, head(h).tanh()) +
          F::pairwise_distance(head(h), head(h).roll(1, 0)).unsqueeze(1) +
          F::pdist(head(h)).mean() + F::cosine_similarity(head(h), head(h * 0.5 + 1)).unsqueeze(1);
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
    }
  }
  run.finish(body, head, slope, both);
}

// Many classes in a tree of clusters.
ZOO_MODEL(adaptive_softmax) {
  nn::Linear body(6, 8);
  nn::AdaptiveLogSoftmaxWithLoss tree(
      nn::AdaptiveLogSoftmaxWithLossOptions(8, 12, {4, 8}).div_value(2.));
  auto optimizer = run.optimizer<optim::Adam>(parameters(body, tree), optim::AdamOptions(1e-2));
  run.prepare(body, tree, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 6}), torch::arange(17) * 5 % 12), 5);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(body, tree);
      auto h = torch::tanh(body(batch.data));
      auto result = tree->forward(h, batch.target);
      run.update(*optimizer, -result.output.mean());
      run.note("its loss", result.loss);
      run.note("output", result.output);
      torch::NoGradGuard no_grad;
      run.note("said", tree->predict(h));
      run.note("chances", tree->log_prob(h).exp().sum(1));
    }
  }
  run.finish(body, tree);
}

// Matrices of each sample: factors, roots, exponentials.
ZOO_MODEL(matrices_of_samples) {
  nn::Linear net(6, 9);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.01);
  run.prepare(net, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 6}), torch::randn({17, 3})), 5);
  for (int epoch = 0; epoch < 1; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      const auto n = batch.data.size(0);
      auto a = net(batch.data).tanh().view({n, 3, 3}) / 3;
      auto good = a.matmul(a.mT()) + torch::eye(3);
      auto factor = torch::linalg_cholesky(good);
      auto x = torch::linalg_solve(good, batch.target.unsqueeze(2)).squeeze(2);
      auto [values, vectors] = torch::linalg_eigh(good);
      auto [q, r] = torch::linalg_qr(a + 2 * torch::eye(3));
      auto [u, s, v] = torch::linalg_svd(a + torch::diag(torch::tensor({1., 2., 3.})));
      auto turned = torch::matrix_exp(a - a.mT());
      auto inverse = torch::linalg_inv(good);
      auto [sign, log_det] = torch::linalg_slogdet(good);
      auto solved = torch::linalg_solve_triangular(factor, batch.target.unsqueeze(2), false);
      auto crossed = torch::linalg_cross(a.select(1, 0), batch.target, 1);
      auto loss = x.pow(2).mean() + values.log().sum(1).mean() + r.diagonal(0, 1, 2).abs().mean() +
          s.sum(1).mean() + turned.matmul(batch.target.unsqueeze(2)).pow(2).mean() +
          inverse.diagonal(0, -2, -1).sum(-1).mean() + (sign * log_det).mean() + solved.norm() / n +
          crossed.norm(2, 1).mean() + torch::linalg_det(good).mean() + torch::linalg_matrix_power(good, 2).mean() +
          torch::linalg_matrix_norm(a).mean() + torch::chain_matmul({a[0], a[n - 1], good[0]}).sum() +
          torch::linalg_multi_dot({batch.target.slice(1, 0, 1).t(), batch.target}).sum() / n +
          torch::baddbmm(good, a, a, 0.5, 2).mean() + torch::linalg_norm(batch.target.mm(batch.target.t())) / n;
      run.update(*optimizer, loss);
      run.note("vectors", vectors.abs());
      run.note("q", q.abs());
      run.note("u", (u * v.mT()).abs());
    }
  }
  run.finish(net);
}

// Sparse matrices: of the graph, of all samples, and out of the batch.
ZOO_MODEL(sparse_matrices) {
  nn::Linear first(4, 5), second(5, 3);
  auto optimizer = run.optimizer<optim::SGD>(parameters(first, second), 0.1);
  run.prepare(first, second, *optimizer);
  auto x = torch::randn({16, 4});
  auto loader = run.loader(Rows(x, torch::arange(16) % 3), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second);
      const auto n = batch.data.size(0);
      auto ring = torch::sparse_coo_tensor(
          torch::stack({torch::arange(n), (torch::arange(n) + 1) % n}),
          torch::full({n}, 0.5), {n, n});
      auto h = torch::relu(first(batch.data));
      h = h + torch::mm(ring, h);
      auto members = torch::sparse_coo_tensor(
          torch::stack({batch.target, torch::arange(n)}), torch::ones({n}), {3, n});
      auto sums = torch::mm(members.coalesce(), h);
      auto scores = second(h) + sums.index_select(0, batch.target).mean(1, true);
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
      run.note("sums", sums);
      run.note("ring", torch::mm(ring.to_dense(), batch.data));
      run.note("sparse", batch.data.detach().relu().to_sparse().to_dense().sum(1));
    }
  }
  run.finish(first, second);
}

// Lines and volumes.
ZOO_MODEL(poolings_of_lines_and_volumes) {
  nn::Conv1d line(nn::Conv1dOptions(2, 3, 3).padding(torch::kSame));
  nn::Conv3d volume(nn::Conv3dOptions(1, 2, 2).groups(1));
  nn::Linear head(11, 3);
  auto optimizer = run.optimizer<optim::SGD>(parameters(line, volume, head), 0.05);
  run.prepare(line, volume, head, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 2, 64}), torch::arange(17) % 3), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(line, volume, head);
      const auto n = batch.data.size(0);
      auto h = line(batch.data);
      auto [largest, places] = F::max_pool1d_with_indices(h, F::MaxPool1dFuncOptions(2));
      auto back = F::max_unpool1d(largest, places, F::MaxUnpool1dFuncOptions(2));
      auto cube = volume(batch.data.select(1, 0).view({n, 1, 4, 4, 4}));
      auto [deep, where] = F::adaptive_max_pool3d_with_indices(cube, F::AdaptiveMaxPool3dFuncOptions({1, 1, 2}));
      auto wide = F::interpolate(
          cube, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 1.5, 2}).mode(torch::kTrilinear).align_corners(false));
      auto padded = F::pad(cube, F::PadFuncOptions({1, 1, 0, 1, 1, 0}).mode(torch::kReplicate));
      auto features = torch::cat(
          {F::adaptive_avg_pool1d(back, F::AdaptiveAvgPool1dFuncOptions(1)).flatten(1),
           F::lp_pool1d(h.abs() + 0.1, F::LPPool1dFuncOptions(2, 4)).mean(2).slice(1, 0, 2),
           F::avg_pool1d(h, F::AvgPool1dFuncOptions(3)).amax(2).slice(1, 0, 1), deep.flatten(1).slice(1, 0, 1),
           F::avg_pool3d(padded, F::AvgPool3dFuncOptions(2)).mean({2, 3, 4}), wide.std({2, 3, 4}, true).flatten(1)},
          1);
      run.update(*optimizer, F::cross_entropy(head(features), batch.target));
      run.note("places", places.sum(2));
      run.note("where", where.flatten(1));
    }
  }
  run.finish(line, volume, head);
}

} // namespace zoo::layers
