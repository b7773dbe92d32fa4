// What the instructions of random programs do, and how programs are drawn.

#include "distributed/part.h"
#include "placing.h"
#include "random_program_layers.h"
#include "random_program_machine.h"
#include "random_program_values.h"

#include <accel/distributed/tensor.h>

#include <cmath>
#include <random>
#include <sstream>

namespace accel::distributed::test {

using at::Tensor;

std::string describe(const Tensor& tensor) {
  std::ostringstream out;
  out << ' ' << tensor.sizes();
  if (accel::distributed::is_distributed(tensor)) {
    for (const auto& placement : placements(tensor)) {
      out << placement;
    }
  }
  if (!distributed::has_usual_strides(tensor)) {
    out << " strides " << tensor.strides();
  }
  out << (tensor.requires_grad() ? " grad" : "") << " sum="
      << full_tensor(tensor.detach()).sum().item<double>();
  return out.str();
}

Tensor Machine::place(const Tensor& tensor, uint64_t seed) const {
  if (mesh == nullptr) {
    return tensor;
  }
  std::mt19937_64 random(seed);
  return place_at_random(*mesh, tensor.detach(), random)
      .requires_grad_(tensor.requires_grad() && tensor.is_leaf());
}

void Machine::push(const Tensor& tensor) {
  auto result = tensor;
  // Values stay in a range in which rounding stays rounding.
  if (result.numel() > 0 && result.is_floating_point()) {
    const double greatest = result.detach().abs().max().item<double>();
    numbers.push_back(greatest);
    if (!(greatest < 20.0317)) { // no number that sums of whole ones are near to
      result = std::isfinite(greatest) ? result / greatest
                                       : torch::nan_to_num(result, 0, 1, -1).tanh();
    }
  }
  if (trace != nullptr) {
    *trace += describe(result);
  }
  if (values.size() < 14) {
    values.push_back(result);
  } else {
    values[next++ % values.size()] = result;
  }
}

int64_t dim_of(const Tensor& x, uint64_t n) {
  return static_cast<int64_t>(n % static_cast<uint64_t>(x.dim()));
}

Tensor apart(const Tensor& x, double step) {
  return x +
      torch::arange(x.numel(), x.options().requires_grad(false))
          .mul(step)
          .view(x.sizes());
}

Tensor weight_of(Machine& m, int64_t rows, uint64_t which) {
  auto p = m.parameters[which % m.parameters.size()];
  const auto flat = p.reshape({-1});
  const int64_t columns = 1 + static_cast<int64_t>(which / 7 % 4);
  // As many as are needed, again and again.
  const int64_t times = (rows * columns + flat.numel() - 1) / flat.numel();
  return flat.repeat({times}).slice(0, 0, rows * columns).view({rows, columns});
}

namespace {

/// `b` so that it can be broadcast with `a`.
Tensor fitting(const Tensor& a, const Tensor& b) {
  const auto& large = a.dim() >= b.dim() ? a : b;
  const auto& small = a.dim() >= b.dim() ? b : a;
  for (int64_t d = 1; d <= small.dim(); ++d) {
    const int64_t m = large.size(-d);
    const int64_t n = small.size(-d);
    if (m != n && m != 1 && n != 1) {
      return b.mean();
    }
  }
  return b;
}

Tensor view_of(const Tensor& x, uint64_t how, uint64_t n) {
  if (x.dim() == 0) {
    return how % 2 == 0 ? x.view({1}) : x.unsqueeze(0);
  }
  const int64_t d = dim_of(x, n);
  const int64_t size = x.size(d);
  switch (how % 12) {
    case 0:
      return x.transpose(d, dim_of(x, n / 7));
    case 1: {
      std::vector<int64_t> order(x.dim());
      for (int64_t i = 0; i < x.dim(); ++i) {
        order[i] = (i + d) % x.dim();
      }
      return x.permute(order);
    }
    case 2:
      return x.reshape({-1});
    case 3:
      return x.unsqueeze(d);
    case 4:
      return x.squeeze();
    case 5:
      return size > 1 ? x.slice(d, 0, c10::nullopt, 2) : x;
    case 6:
      return size > 1 ? x.select(d, static_cast<int64_t>(n / 3 % size)) : x;
    case 7:
      return size > 1 ? x.narrow(d, 1, size - 1) : x;
    case 8:
      return x.dim() >= 2 ? x.diagonal(0, 0, 1) : x;
    case 9:
      return x.chunk(2, d).back();
    case 10:
      return x.flatten();
    default:
      return size > 1 ? x.unfold(d, 2, 1) : x.view(x.sizes());
  }
}

void unary(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  switch (i.c % 22) {
    case 0: return m.push(x.tanh());
    case 1: return m.push(x.sigmoid());
    case 2: return m.push(x.sin() * 1.1);
    case 3: return m.push((x * 0.1).exp());
    case 4: return m.push((x - 0.12347).relu());
    case 5: return m.push(torch::gelu(x));
    case 6: return m.push(torch::softplus(x));
    case 7: return m.push((x + 0.31719).abs());
    case 8: return m.push(x * x);
    case 9: return m.push(-x);
    case 10: return m.push(x * 0.7 + 0.1);
    case 11: return m.push(x.clamp(-0.7713, 0.6317));
    case 12: return m.push(torch::where(x > 0.21731, x, torch::full_like(x, 0.3)));
    case 13: return m.push(torch::leaky_relu(x - 0.07171, 0.2));
    case 14: return m.push((1 + x * x).log());
    case 15: return m.push((1 + x * x).reciprocal());
    case 16: return m.push((1 + x * x).sqrt());
    case 17: return m.push((x > 0.1137).to(at::kDouble) * x);
    case 18: return m.push(x.clone());
    case 19: return m.push(x.detach());
    case 20: return m.push(x.contiguous());
    default: return m.push(torch::erf(x));
  }
}

void binary(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  const auto y = fitting(x, m.value(i.b));
  switch (i.c % 12) {
    case 0: return m.push(x + y);
    case 1: return m.push(x - y * 0.5);
    case 2: return m.push(x * y);
    case 3: return m.push(x / (1 + y * y));
    case 4: return m.push(torch::maximum(x + 0.01371, y * 1.003));
    case 5: return m.push(torch::where(x > 0.0917, x, y));
    case 6: return m.push(torch::lerp(x.expand_as(x + y), y.expand_as(x + y), 0.3));
    case 7: return m.push(torch::addcmul(x, x, y, 0.5));
    case 8: return m.push(torch::add(y, x, 2));
    case 9: return m.push(torch::atan2(x + 0.0371, y * y + 1));
    case 10: return m.push(torch::mse_loss(x.expand_as(x + y), y.expand_as(x + y)));
    default: return m.push(torch::hypot(x + 0.3713, y - 0.2133));
  }
}

void reduction(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  if (x.dim() == 0) {
    return m.push(x.sum());
  }
  const int64_t d = dim_of(x, i.b);
  const bool keep = i.b / 8 % 2 == 0;
  switch (i.c % 20) {
    case 0: return m.push(x.sum(d, keep));
    case 1: return m.push(x.mean(d, keep));
    case 2: return m.push(x.sum());
    case 3: return m.push(x.mean());
    case 4: return m.push(x.var(d, x.size(d) > 1, keep));
    case 5: return m.push(apart(x, 0.0371).amax(d, keep));
    case 6: return m.push((x * x + 0.1).norm(2, d, keep));
    case 7: return m.push(x.softmax(d));
    case 8: return m.push(x.log_softmax(d));
    case 9: return m.push(x.logsumexp(d, keep));
    case 10: return m.push(x.cumsum(d));
    case 11: return m.push(std::get<0>(apart(x).sort(d, keep)));
    case 12: return m.push(std::get<0>(apart(x, 0.0171).topk(1 + (x.size(d) - 1) / 2, d)));
    case 13: return m.push(apart(x, 0.0231).argmax(d).to(at::kDouble) * 0.1);
    case 14: return m.push(std::get<0>(apart(x, 0.0293).max(d, keep)));
    case 15: return m.push((x * 0.3 + 1.1).prod(d, keep));
    case 16: return m.push((x > 0.0713).sum(d, keep).to(at::kDouble) * 0.1);
    case 17: return m.push((x > 0.0713).any(d, keep).to(at::kDouble) + x.mean());
    case 18: return m.push(std::get<0>(apart(x, 0.0337).median(d, keep)));
    // Of equal numbers the gradient would be rounding over rounding.
    default: return m.push(apart(x, 0.0419).std(d, x.size(d) > 1, keep) + 0.1);
  }
}

void reshape(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  m.push(view_of(x, i.c, i.b));
}

void shape_copy(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  if (x.dim() == 0) {
    return m.push(x.expand({3}));
  }
  const int64_t d = dim_of(x, i.b);
  const int64_t size = x.size(d);
  const auto longs = torch::TensorOptions(at::kLong);
  switch (i.c % 16) {
    case 0: return m.push(x.flip(d));
    case 1: return m.push(x.roll(1, d));
    case 2: return m.push(torch::cat({x, x * 0.5}, d));
    case 3: return m.push(torch::stack({x, x + 1}, d));
    case 4: return m.push(x.index_select(d, torch::arange(size, longs).flip(0)));
    case 5: return m.push(
        x.gather(d, torch::zeros_like(x, longs).add_(size - 1)));
    case 6: return m.push(x.repeat(std::vector<int64_t>(x.dim(), 2)));
    case 7: return m.push(torch::constant_pad_nd(x, {1, 1}, 0.25));
    case 8: return m.push(x.dim() >= 2 ? x.tril() : torch::diag(x));
    case 9: return m.push(x.unsqueeze(d).expand([&] {
      auto sizes = x.sizes().vec();
      sizes.insert(sizes.begin() + d, 3);
      return sizes;
    }()));
    case 10: return m.push(x.index({torch::arange(x.size(0), longs).flip(0)}));
    case 11: return m.push(x.index({x.dim() == 1 ? x > 0.1773 : x.select(-1, 0) > 0.1773}).sum(0));
    case 12: return m.push(x.masked_select(x > 0.1133).sum() + x.mean());
    case 13: return m.push(torch::zeros_like(x).scatter_add(
        d, torch::zeros_like(x, longs).add_(size / 2), x));
    case 14: return m.push(x.masked_fill(x > 0.4171, 0.5));
    default: return m.push(
        torch::zeros_like(x).index_add(d, torch::arange(size, longs).flip(0), x));
  }
}

void layer(Machine& m, const Instruction& i) {
  auto x = m.value(i.a);
  if (x.dim() == 0) {
    x = x.view({1});
  }
  const auto w = weight_of(m, x.size(-1), i.b);
  switch (i.c % 14) {
    case 0: return m.push(torch::matmul(x, w));
    case 1: return m.push(torch::linear(x, w.t(), w.sum(0)));
    case 2: return m.push(torch::layer_norm(x, {x.size(-1)}, w.select(1, 0), w.sum(1)));
    case 3: return x.dim() >= 2
        ? m.push(torch::matmul(x.transpose(-1, -2), x))
        : m.push(torch::outer(x, x));
    case 4: {
      const auto rows = x.reshape({-1, x.size(-1)});
      return m.push(torch::addmm(w.sum(0), rows, w));
    }
    case 5: {
      const auto rows = x.reshape({-1, x.size(-1)});
      if (rows.size(0) < 2) {
        return m.push(rows);
      }
      auto mean = torch::zeros({rows.size(1)}, x.options().requires_grad(false));
      auto var = torch::ones({rows.size(1)}, x.options().requires_grad(false));
      // Contiguous: LibTorch's backward on the CPU reads other weights of a
      // contiguous input as if they were.
      auto y = torch::batch_norm(
          rows, w.select(1, 0).contiguous(), w.sum(1), mean, var, true, 0.1, 1e-3,
          false);
      m.push(y);
      return m.push(mean + var);
    }
    case 6: {
      const auto rows = x.reshape({1, -1, x.size(-1)});
      const auto kernel =
          weight_of(m, 2 * rows.size(1), i.b / 3).slice(1, 0, 1).reshape(
              {2, rows.size(1), 1});
      return m.push(torch::conv1d(rows, kernel));
    }
    case 7: {
      const auto batch = x.reshape({-1, 1, x.size(-1)});
      const auto kernel = weight_of(m, 6, i.b / 3).slice(1, 0, 1).reshape({2, 1, 3});
      return m.push(torch::conv1d(batch, kernel, {}, 1, 1));
    }
    case 8: {
      const auto batch = apart(x.reshape({-1, 1, x.size(-1)}), 0.0411);
      return m.push(torch::max_pool1d(batch, 2, 1, 1));
    }
    case 9: return m.push(torch::avg_pool1d(x.reshape({-1, 1, x.size(-1)}), 2, 1, 1));
    case 10: {
      const auto rows = x.reshape({-1, x.size(-1)});
      const auto target =
          torch::arange(rows.size(0), at::kLong).remainder(rows.size(1));
      return m.push(torch::nll_loss(rows.log_softmax(1), target));
    }
    case 11: {
      const auto target =
          torch::arange(x.size(0), at::kLong).remainder(x.size(-1));
      return m.push(torch::embedding(w, target));
    }
    case 12: {
      const auto rows = x.reshape({-1, x.size(-1)});
      return m.push(torch::cdist(rows, rows * 0.5 + 0.37));
    }
    default: return m.push(
        torch::binary_cross_entropy_with_logits(x, torch::sigmoid(x.detach())));
  }
}

/// A write through a view of a fresh copy, which autograd follows.
void write_view(Machine& m, const Instruction& i) {
  auto y = m.value(i.a).clone();
  auto v = view_of(y, i.c, i.b);
  const auto other = m.value(i.b / 5).mean();
  switch (i.c / 12 % 10) {
    case 0: v.mul_(0.5); break;
    case 1: v.add_(other); break;
    case 2: v.fill_(0.3); break;
    case 3: v.zero_(); break;
    case 4: v.copy_(other.expand_as(v)); break;
    case 5: v.masked_fill_(v > 0.1171, 0.2); break;
    case 6: v.copy_(torch::sin(v)); break;
    case 7: v.sub_(v.detach() * 0.5); break;
    case 8:
      if (v.dim() > 0) {
        v.index_put_({0}, other);
      }
      break;
    default: v.clamp_(-0.5171, 0.5313); break;
  }
  m.push(y);
  m.push(v);
}

/// A write into what is there already, which others may be views of.
void write_old(Machine& m, const Instruction& i) {
  const torch::NoGradGuard no_grad;
  auto x = m.value(i.a);
  if (x.requires_grad() || x.numel() == 0) {
    x = x.detach().clone();
  }
  auto v = i.b % 2 == 0 ? x : view_of(x, i.c, i.b / 2);
  switch (i.c / 12 % 5) {
    case 0: v.mul_(0.5); break;
    case 1: v.add_(0.1); break;
    case 2: v.copy_(fitting(v, m.value(i.b / 3)).detach().clone().mean().expand_as(v)); break;
    case 3: v.tanh_(); break;
    default: v.fill_(0.25); break;
  }
  m.push(v);
}

void branch(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  const double mean = x.numel() > 0 ? x.detach().mean().item<double>() : 0;
  m.numbers.push_back(mean);
  m.push(mean > 0.0573 ? x * 0.9 : x + m.value(i.b).mean());
}

void place(Machine& m, const Instruction& i) {
  auto& x = m.value(i.a);
  if (x.requires_grad() || x.dim() == 0) {
    // With its graph. A value of its own: others may be views of the old one.
    if (x.dim() > 0) {
      x = x.clone();
    }
    if (m.mesh != nullptr && x.dim() > 0) {
      std::mt19937_64 random(i.seed);
      std::vector<Placement> to;
      for (int64_t k = 0; k < m.mesh->ndim(); ++k) {
        const auto kind = random() % 4;
        to.push_back(
            kind == 0       ? Replicate()
                : kind == 1 ? Partial()
                            : Shard(dim_of(x, random())));
      }
      x = distribute_tensor(x, *m.mesh, to);
    }
    return;
  }
  // Others may be views of the old one: a value of its own.
  m.push(m.mesh == nullptr ? x.clone() : m.place(full_tensor(x.clone()), i.seed));
}

void whole(Machine& m, const Instruction& i) {
  const auto x = m.value(i.a);
  m.push(m.mesh == nullptr ? x * 1 : full_tensor(x) * 1);
}

Tensor loss_of(Machine& m, const Instruction& i) {
  Tensor loss = m.parameters[i.c % m.parameters.size()].pow(2).mean() * 0.1;
  for (const uint64_t n : {i.a, i.b, i.c}) {
    const auto x = m.value(n);
    if (x.numel() > 0) {
      loss = loss + (x - 0.1).pow(2).mean();
    }
  }
  return loss;
}

void detach_all(Machine& m) {
  for (auto& value : m.values) {
    value = value.detach();
  }
}

void train(Machine& m, const Instruction& i) {
  m.optimizer->zero_grad();
  const auto loss = loss_of(m, i);
  loss.backward();
  m.numbers.push_back(loss.item<double>());
  m.optimizer->step();
  detach_all(m);
}

void train_twice_differentiated(Machine& m, const Instruction& i) {
  m.optimizer->zero_grad();
  const auto loss = loss_of(m, i);
  auto gradients = torch::autograd::grad(
      {loss}, m.parameters, {}, /*retain_graph=*/true, /*create_graph=*/true,
      /*allow_unused=*/true);
  Tensor penalty = loss;
  for (const auto& gradient : gradients) {
    if (gradient.defined()) {
      penalty = penalty + 0.1 * gradient.pow(2).sum();
    }
  }
  penalty.backward();
  m.numbers.push_back(penalty.item<double>());
  torch::nn::utils::clip_grad_norm_(m.parameters, 1.0);
  m.optimizer->step();
  detach_all(m);
}

} // namespace

const std::vector<Named>& actions() {
  static const std::vector<Named> all{
      {"unary", unary, 6},          {"binary", binary, 8},
      {"reduction", reduction, 6},  {"view", reshape, 6},
      {"copy", shape_copy, 5},      {"layer", layer, 6},
      {"write_view", write_view, 4}, {"write_old", write_old, 3},
      {"branch", branch, 2},        {"place", place, 5},
      {"whole", whole, 1},          {"train", train, 3},
      {"train_twice", train_twice_differentiated, 1},
      {"module", module, 0}, // drawn by make_program
  };
  return all;
}

Program make_program(uint64_t seed, int64_t length, bool layers) {
  std::mt19937_64 random(seed * 7919 + 11);
  int total = 0;
  for (const auto& action : actions()) {
    total += action.weight;
  }
  Program program;
  for (int64_t k = 0; k < length; ++k) {
    int drawn = static_cast<int>(random() % total);
    size_t which = 0;
    while (drawn >= actions()[which].weight) {
      drawn -= actions()[which++].weight;
    }
    program.push_back(
        {actions()[which].name, random() % 10007, random() % 10007,
         random() % 10007, random()});
    auto& last = program.back();
    if (layers && last.seed % 2 == 0 && last.name.rfind("train", 0) != 0) {
      last.name = "module";
    }
  }
  program.push_back({"train", random() % 10007, random() % 10007, 0, random()});
  return program;
}

std::string text_of(const Program& program) {
  std::ostringstream out;
  for (const auto& i : program) {
    out << "    " << i.name << " a=" << i.a << " b=" << i.b << " c=" << i.c
        << " seed=" << i.seed << '\n';
  }
  return out.str();
}

} // namespace accel::distributed::test
