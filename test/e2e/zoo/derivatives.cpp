// Derivatives of derivatives, functions of one's own, hooks, scripts.

#include "zoo.h"

#include <torch/script.h>

#include <cmath>
#include <sstream>

namespace zoo::derivatives {

nn::Sequential dense(int64_t from, int64_t to) {
  return nn::Sequential(nn::Linear(from, 8), nn::Tanh(), nn::Linear(8, to));
}

Tensor derivative(const Tensor& of, const Tensor& by) {
  return torch::autograd::grad(
      {of}, {by}, {torch::ones_like(of)}, /*retain_graph=*/true,
      /*create_graph=*/true)[0];
}

// u_t = nu u_xx - u u_x, with points on the rim (PINN).
ZOO_MODEL(differential_equation) {
  auto net = dense(2, 1);
  auto nu = torch::full({}, 0.1).requires_grad_();
  auto all = net->parameters();
  all.push_back(nu);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(net, *optimizer);
  auto points = torch::rand({17, 2}) * 2 - 1;
  auto loader = run.loader(Rows(points, points.select(1, 0).mul(-M_PI).sin()), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto x = batch.data.select(1, 0).unsqueeze(1).requires_grad_();
      auto t = batch.data.select(1, 1).unsqueeze(1).abs().requires_grad_();
      auto u = net->forward(torch::cat({x, t}, 1));
      auto u_t = derivative(u, t), u_x = derivative(u, x), u_xx = derivative(u_x, x);
      auto inside = (u_t + u * u_x - nu.abs() * u_xx).pow(2).mean();
      auto start = net->forward(torch::cat({x, torch::zeros_like(t)}, 1)).squeeze(1);
      auto rim = net->forward(torch::tensor({{-1., 0.5}, {1., 0.5}}));
      run.update(
          *optimizer,
          inside + F::mse_loss(start, batch.target) + rim.pow(2).mean());
    }
    run.note("nu", nu);
  }
  // On a grid, as it would be plotted.
  auto axis = torch::linspace(-1, 1, 5);
  auto grid = torch::meshgrid({axis, axis.abs()}, "ij");
  auto at = torch::stack({grid[0].flatten(), grid[1].flatten()}, 1);
  torch::NoGradGuard no_grad;
  run.note("solution", net->forward(run.distribute(at)).view({5, 5}));
  run.finish(net);
}

// A network is the right side of an equation that is integrated.
ZOO_MODEL(neural_ode) {
  auto field = dense(3, 3);
  auto optimizer = run.optimizer<optim::Adam>(field->parameters(), optim::AdamOptions(1e-2));
  run.prepare(field, *optimizer);
  auto start = torch::randn({17, 2});
  auto turned = torch::stack({-start.select(1, 1), start.select(1, 0)}, 1);
  auto loader = run.loader(Rows(start, turned), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(field);
      auto z = F::pad(batch.data, F::PadFuncOptions({0, 1}));
      double time = 0;
      int64_t calls = 0;
      // The size of a step is what the largest change of the batch allows.
      while (time < 1 && calls < 40) {
        auto k1 = field->forward(z);
        const double h = std::min(
            1 - time, 0.4 / (1 + k1.detach().abs().max().item<double>()));
        auto k2 = field->forward(z + h / 2 * k1);
        auto k3 = field->forward(z + h / 2 * k2);
        auto k4 = field->forward(z + h * k3);
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4);
        time += h;
        calls += 4;
      }
      run.update(*optimizer, F::mse_loss(z.slice(1, 0, 2), batch.target));
      run.note("calls", static_cast<double>(calls));
    }
  }
  run.finish(field);
}

// A step on each task is a function of the weights before it (MAML).
ZOO_MODEL(learning_to_learn) {
  auto w1 = torch::randn({1, 8}).requires_grad_(), b1 = torch::zeros({8}).requires_grad_();
  auto w2 = torch::randn({8, 1}).mul(0.3).requires_grad_(), b2 = torch::zeros({1}).requires_grad_();
  const std::vector<Tensor> weights = {w1, b1, w2, b2};
  auto optimizer = run.optimizer<optim::Adam>(weights, optim::AdamOptions(1e-2));
  run.prepare(*optimizer);
  // A sample is a task: 6 points of a wave.
  auto phase = torch::rand({13, 1}) * 3;
  auto x = torch::rand({13, 6}) * 4 - 2;
  auto loader = run.loader(Rows(x, (x + phase).sin()), 4);
  const auto apply = [](const std::vector<Tensor>& p, const Tensor& in) {
    return torch::tanh(in.unsqueeze(-1).matmul(p[0]) + p[1]).matmul(p[2]).add(p[3]).squeeze(-1);
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate();
      auto loss = torch::zeros({});
      for (int64_t task = 0; task < batch.data.size(0); ++task) {
        auto fast = weights;
        for (int i = 0; i < 2; ++i) {
          auto inner = F::mse_loss(
              apply(fast, batch.data[task].slice(0, 0, 3)),
              batch.target[task].slice(0, 0, 3));
          auto gradients = torch::autograd::grad({inner}, fast, {}, true, true);
          for (size_t p = 0; p < fast.size(); ++p) {
            fast[p] = fast[p] - 0.1 * gradients[p];
          }
        }
        loss = loss + F::mse_loss(
            apply(fast, batch.data[task].slice(0, 3)), batch.target[task].slice(0, 3));
      }
      run.update(*optimizer, loss / batch.data.size(0));
    }
  }
  for (const auto& weight : weights) {
    run.note("weight", weight);
  }
}

// Gradients by each parameter's own are part of the loss; and the gradient's
// change along a direction (a product with the Hessian).
ZOO_MODEL(penalties_on_gradients) {
  auto net = dense(4, 3);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.05);
  run.prepare(net, *optimizer);
  auto x = torch::randn({17, 4});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto input = batch.data.detach().clone().requires_grad_(true);
      auto scores = net->forward(input);
      auto loss = F::cross_entropy(scores, batch.target);
      auto by_weights = torch::autograd::grad(
          {loss}, net->parameters(), {}, /*retain_graph=*/true, /*create_graph=*/true);
      auto square = torch::zeros({});
      for (const auto& g : by_weights) {
        square = square + g.pow(2).sum();
      }
      // All rows of the Jacobian of each sample.
      auto jacobian = torch::zeros({});
      for (const auto& column : scores.unbind(1)) {
        jacobian = jacobian + derivative(column, input).pow(2).sum(1).mean();
      }
      auto direction = F::normalize(torch::randn_like(input));
      auto along = (derivative(loss, input) * direction).sum();
      auto curvature = torch::autograd::grad(
          {along}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      run.update(
          *optimizer,
          loss + 0.1 * square + 0.01 * jacobian + curvature.norm());
      run.note("curvature", curvature.norm(2, 1));
    }
  }
  run.finish(net);
}

/// Signs whose gradient passes as if they were not taken, within limits.
struct Sign : torch::autograd::Function<Sign> {
  static Tensor forward(
      torch::autograd::AutogradContext* ctx, const Tensor& x, double limit) {
    ctx->save_for_backward({x});
    ctx->saved_data["limit"] = limit;
    return torch::where(x < 0, torch::full_like(x, -1), torch::ones_like(x));
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list g) {
    auto x = ctx->get_saved_variables()[0];
    auto inside = x.abs().le(ctx->saved_data["limit"].toDouble());
    return {g[0] * inside, Tensor()};
  }
};

/// Writes into its argument; its backward can be differentiated again.
struct CubeInPlace : torch::autograd::Function<CubeInPlace> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, Tensor x) {
    ctx->save_for_backward({x.clone()});
    x.pow_(3);
    ctx->mark_dirty({x});
    return x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list g) {
    auto x = ctx->get_saved_variables()[0];
    return {3 * x * x * g[0]};
  }
};

/// A layer with two results, the statistics of the batch among them.
struct Centre : torch::autograd::Function<Centre> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& gain) {
    auto mean = x.mean(0, true);
    auto rest = x - mean;
    ctx->save_for_backward({rest, gain});
    return {rest * gain, mean};
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx, torch::autograd::variable_list g) {
    auto saved = ctx->get_saved_variables();
    auto to_rest = g[0] * saved[1];
    auto to_x = to_rest - to_rest.mean(0, true) +
        g[1] / static_cast<double>(g[0].size(0));
    return {to_x, (g[0] * saved[0]).sum(0)};
  }
};

ZOO_MODEL(functions_of_ones_own) {
  nn::Linear first(4, 6), second(6, 3);
  auto gain = torch::ones({6}).requires_grad_();
  auto all = parameters(first, second);
  all.push_back(gain);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(first, second, *optimizer);
  auto x = torch::randn({17, 4});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second);
      auto weight = Sign::apply(first->weight, 0.4);
      auto made = Centre::apply(F::linear(batch.data, weight, first->bias), gain);
      auto h = CubeInPlace::apply(made[0] * 0.2);
      run.update(
          *optimizer,
          F::cross_entropy(second(h), batch.target) + 0.01 * made[1].pow(2).sum());
    }
  }
  run.note("gain", gain);
  run.finish(first, second);
}

// Hooks look at gradients and change them: of parameters, and of tensors between;
// a gradient that is turned round on its way (domains that should look alike).
ZOO_MODEL(hooks) {
  nn::Linear first(4, 6), second(6, 3), domain(6, 1);
  auto optimizer = run.optimizer<optim::SGD>(parameters(first, second, domain), 0.1);
  run.prepare(first, second, domain, *optimizer);
  second->weight.register_hook([](const Tensor& g) { return g * 0.5; });
  second->bias.register_hook([](Tensor g) { return torch::zeros_like(g); });
  auto x = torch::randn({17, 4});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(first, second, domain);
      auto h = torch::tanh(first(batch.data));
      Tensor seen;
      double norm = 0;
      h.register_hook([&](const Tensor& g) {
        norm = g.norm().item<double>();
        return g.clamp(-0.05, 0.05);
      });
      h.retain_grad();
      auto turned = h * 1;
      turned.register_hook([](Tensor g) { return -0.3 * g; });
      auto is_first = (batch.data.select(1, 3) > 0).to(torch::kDouble).unsqueeze(1);
      auto loss = F::cross_entropy(second(h), batch.target) +
          F::binary_cross_entropy_with_logits(domain(turned), is_first);
      run.update(*optimizer, loss);
      run.note("norm", norm);
      run.note("gradient between", h.grad());
    }
  }
  run.finish(first, second, domain);
}

// What Python has scripted: a function with branches and loops, and a module
// that was saved and is loaded.
ZOO_MODEL(torch_script) {
  auto unit = torch::jit::compile(R"(
    def squash(x, limit: float):
      rows = x.size(0)
      total = torch.zeros_like(x[0])
      for i in range(rows):
        total = total + x[i]
      if bool((total.abs() > limit).any()):
        x = x - total / rows
      return torch.tanh(x), rows
  )");
  torch::jit::Module made("scripted");
  made.register_parameter("weight", torch::randn({3, 4}).requires_grad_(), /*is_buffer=*/false);
  made.register_buffer("calls", torch::zeros({}));
  made.register_attribute("training", c10::BoolType::get(), torch::IValue(true));
  made.define(R"(
    def forward(self, x):
      self.calls += 1
      x = torch.dropout(x, 0.2, self.training)
      parts = [torch.matmul(x, self.weight.t())]
      while len(parts) < 3:
        parts.append(parts[-1] * 0.5 + torch.relu(parts[0]))
      return torch.stack(parts).mean(0)
  )");
  std::stringstream file;
  made.save(file);
  auto net = torch::jit::load(file);
  std::vector<Tensor> weights;
  for (const auto& p : net.parameters()) {
    weights.push_back(p);
  }
  auto optimizer = run.optimizer<optim::Adam>(weights, optim::AdamOptions(2e-2));
  run.prepare(*optimizer);
  auto x = torch::randn({17, 4});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    net.train();
    for (auto& batch : *loader) {
      auto step = run.accumulate();
      auto result = unit->run_method("squash", batch.data, 2.5).toTuple();
      run.note("rows", static_cast<double>(result->elements()[1].toInt()));
      auto scores = net.forward({result->elements()[0]}).toTensor();
      run.update(*optimizer, F::cross_entropy(scores, batch.target));
    }
    net.eval();
    torch::NoGradGuard no_grad;
    run.note("eval", net.forward({torch::ones({2, 4})}).toTensor());
  }
  run.note("calls", net.attr("calls").toTensor());
  run.note("weight", weights[0]);
}

// A Gaussian process over the rows of the batch, whose kernel is learned.
ZOO_MODEL(gaussian_process) {
  auto features = dense(3, 2);
  auto log_noise = torch::full({}, -1.).requires_grad_();
  auto log_width = torch::zeros({2}).requires_grad_();
  auto all = features->parameters();
  all.insert(all.end(), {log_noise, log_width});
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(2e-2));
  run.prepare(features, *optimizer);
  auto x = torch::randn({17, 3});
  auto y = x.sum(1).sin();
  auto loader = run.loader(Rows(x, y), 6);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(features);
      const auto n = batch.data.size(0);
      auto z = features->forward(batch.data) / log_width.exp();
      auto far = (z.unsqueeze(0) - z.unsqueeze(1)).pow(2).sum(-1);
      auto kernel = torch::exp(-0.5 * far) + (log_noise.exp() + 1e-3) * torch::eye(n);
      auto factor = torch::linalg_cholesky(kernel);
      auto solved = torch::cholesky_solve(batch.target.unsqueeze(1), factor);
      auto loss = 0.5 * torch::dot(batch.target, solved.squeeze(1)) +
          factor.diagonal().log().sum() + 0.5 * static_cast<double>(n) * std::log(2 * M_PI);
      run.update(*optimizer, loss / n);
    }
  }
  run.note("noise", log_noise);
  run.note("width", log_width);
  // What it says of new points, from all of the old ones.
  torch::NoGradGuard no_grad;
  auto old = features->forward(run.distribute(x));
  auto now = features->forward(torch::ones({2, 3}));
  auto kernel = torch::exp(-0.5 * torch::cdist(old, old).pow(2)) + 0.1 * torch::eye(17);
  auto weights = torch::linalg_solve(kernel, y);
  run.note("mean", torch::exp(-0.5 * torch::cdist(now, old).pow(2)).mv(weights));
  run.finish(features);
}

// Layers in the space of frequencies.
ZOO_MODEL(fourier_layers) {
  auto real = torch::randn({3, 3, 4}).mul(0.3).requires_grad_();
  auto imaginary = torch::randn({3, 3, 4}).mul(0.3).requires_grad_();
  nn::Conv1d lift(1, 3, 1), down(3, 1, 1);
  auto all = parameters(lift, down);
  all.insert(all.end(), {real, imaginary});
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(lift, down, *optimizer);
  auto x = torch::randn({17, 1, 8});
  auto loader = run.loader(Rows(x, x.cumsum(2)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(lift, down);
      auto h = lift(batch.data);
      auto waves = torch::fft::rfft(h, std::nullopt, -1);
      auto weight = torch::complex(real, imaginary);
      auto some = torch::einsum("bix,iox->box", {waves.slice(2, 0, 4), weight});
      auto spectrum = torch::cat({some, torch::zeros_like(waves.slice(2, 4))}, 2);
      auto next = torch::gelu(torch::fft::irfft(spectrum, 8, -1) + h);
      // Along the batch, too: what one would call a mixer.
      auto mixed = torch::real(torch::fft::fft(next.flatten(1), std::nullopt, 0));
      run.update(
          *optimizer,
          F::mse_loss(down(next), batch.target) +
              1e-3 * mixed.pow(2).mean() + 1e-2 * waves.abs().mean());
    }
  }
  run.note("real", real);
  run.note("imaginary", imaginary);
  run.finish(lift, down);
}

// Inputs that are moved so that the model errs, by a step and by several.
ZOO_MODEL(adversarial_inputs) {
  auto net = dense(4, 3);
  auto optimizer = run.optimizer<optim::SGD>(net->parameters(), 0.1);
  run.prepare(net, *optimizer);
  auto x = torch::randn({17, 4});
  auto loader = run.loader(Rows(x, x.slice(1, 0, 3).argmax(1)), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(net);
      auto moved = batch.data + torch::empty_like(batch.data).uniform_(-0.1, 0.1);
      for (int i = 0; i < 2; ++i) {
        moved = moved.detach();
        moved.requires_grad_();
        auto loss = F::cross_entropy(net->forward(moved), batch.target);
        auto gradient = torch::autograd::grad({loss}, {moved})[0];
        moved = moved + 0.05 * gradient.sign();
        moved = torch::max(torch::min(moved, batch.data + 0.1), batch.data - 0.1);
      }
      auto clean = net->forward(batch.data), attacked = net->forward(moved.detach());
      auto loss = F::cross_entropy(clean, batch.target) +
          F::kl_div(
              attacked.log_softmax(1), clean.softmax(1),
              F::KLDivFuncOptions().reduction(torch::kBatchMean));
      run.update(*optimizer, loss);
      run.note("fooled", (clean.argmax(1) != attacked.argmax(1)).sum());
    }
  }
  run.finish(net);
}

// Sounds: short spectra, filters, differences; and all pairs of samples.
ZOO_MODEL(spectra_and_pairs) {
  auto filters = torch::rand({5, 4}).requires_grad_();
  nn::GRU gru(nn::GRUOptions(4, 5).batch_first(true));
  nn::Linear head(5, 3);
  auto all = parameters(gru, head);
  all.push_back(filters);
  auto optimizer = run.optimizer<optim::Adam>(all, optim::AdamOptions(1e-2));
  run.prepare(gru, head, *optimizer);
  auto loader = run.loader(Rows(torch::randn({17, 24}), torch::arange(17) % 3), 5);
  const auto window = torch::hann_window(8);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      auto step = run.accumulate(gru, head);
      const auto n = batch.data.size(0);
      auto spectrum = torch::stft(
          batch.data, 8, 4, 8, window, /*center=*/true, "reflect", /*normalized=*/false,
          /*onesided=*/true, /*return_complex=*/true);
      auto bands = torch::log1p(spectrum.abs().pow(2).transpose(1, 2).matmul(filters.abs()));
      auto h = std::get<0>(gru->forward(bands)).select(1, -1);
      auto again = torch::istft(spectrum, 8, 4, 8, window);
      run.note("again", (again - batch.data.slice(1, 0, again.size(1))).abs().max() < 1e-9);
      auto pairs = torch::triu_indices(n, n, 1);
      auto distances = (h.index({pairs[0]}) - h.index({pairs[1]})).pow(2).sum(1);
      auto alike = batch.target.index({pairs[0]}) == batch.target.index({pairs[1]});
      auto loss = F::cross_entropy(head(h), batch.target) +
          torch::where(alike, distances, F::relu(0.1 - distances)).mean() +
          0.01 * torch::gradient(bands, 1., 1)[0].abs().mean() +
          0.01 * torch::einsum("...i,...j,ij->...", {bands, bands, torch::eye(4)}).mean() +
          0.01 * torch::cdist(h, h, 1.).mean() + 0.01 * torch::nanmean(h.masked_fill(h > 0.3, NAN)) +
          0.01 * std::get<0>(h.cummin(0)).mean() + 0.01 * torch::msort(h)[0].sum() +
          0.01 * torch::fft::irfft2(torch::fft::rfft2(h)).pow(2).mean() +
          0.01 * torch::cov(h.t()).diagonal().sum();
      run.update(*optimizer, loss);
    }
  }
  run.note("filters", filters);
  run.finish(gru, head);
}

} // namespace zoo::derivatives
