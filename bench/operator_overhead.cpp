// What an operator on a distributed tensor costs beyond the same operator on a
// plain one: on one process, on a mesh of one axis, so that all of it is
// bookkeeping; and what that makes of a step of 200 small layers whose batch is
// distributed. Plain and distributed rounds take turns, the least of each
// counts.
//
//   operator_overhead [--rounds N] [--only NAME]
//
// NAME: of an operator as it is printed, or "step".
// Exit code 1 where a figure is above what is wanted.

#include "models.h"

#include <accel/accel.h>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using torch::Tensor;

double microseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::micro> spent =
      std::chrono::steady_clock::now() - start;
  return spent.count();
}

/// The least of each, of rounds that take turns.
std::pair<double, double> least(
    int rounds,
    const std::function<void()>& plain,
    const std::function<void()>& distributed) {
  std::pair<double, double> best{1e30, 1e30};
  for (int round = 0; round < rounds; ++round) {
    best.first = std::min(best.first, microseconds(plain));
    best.second = std::min(best.second, microseconds(distributed));
  }
  return best;
}

struct Case {
  const char* name;
  /// Operators that one call makes.
  int operators;
  /// Wanted, in microseconds for each operator.
  double wanted;
  std::function<Tensor(const Tensor&)> call;
};

bool verdict(double value, double wanted) {
  std::printf(", at most %.2f wanted%s\n", wanted, value <= wanted ? "" : "   MISSED");
  return value <= wanted;
}

} // namespace

int main(int argc, char** argv) {
  int rounds = 40;
  std::string only;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 < argc && name == "--rounds") {
      rounds = std::max(1, std::atoi(argv[i + 1]));
    } else if (i + 1 < argc && name == "--only") {
      only = argv[i + 1];
    } else {
      std::fprintf(stderr, "operator_overhead: unknown option %s\n", argv[i]);
      return 2;
    }
  }

  torch::set_num_threads(1);
  accel::Accelerator accelerator;
  torch::manual_seed(0);
  namespace dist = accel::distributed;
  const dist::DeviceMesh mesh;
  const auto cut = [&](const Tensor& x) {
    return dist::distribute_tensor(x, mesh, {dist::Shard(0)});
  };
  const auto x = torch::randn({16, 64});
  const auto y = cut(x);
  const auto weight = torch::randn({32, 64});
  const auto bias = torch::randn({32});
  const auto columns = torch::randn({64, 32});
  bool good = true;
  {
    const torch::NoGradGuard no_grad;
    // The operators that rule a step, in kernels of their own.
    const double hot = 0.15;
    // All others: in kernels of their own, too, or (from softmax on) by the table
    // of rules.
    const double other = 0.40;
    const std::vector<Case> cases{
        {"relu", 1, hot, [](const Tensor& t) { return torch::relu(t); }},
        {"add", 1, hot, [](const Tensor& t) { return t + t; }},
        {"add_", 1, hot, [](Tensor t) { return t.add_(t, 1e-9); }},
        {"mul", 1, hot, [](const Tensor& t) { return t * t; }},
        {"sum(0)", 1, hot, [](const Tensor& t) { return t.sum(0); }},
        {"sum(1)", 1, hot, [](const Tensor& t) { return t.sum(1); }},
        {"view", 1, hot, [](const Tensor& t) { return t.view({16, 8, 8}); }},
        {"t", 1, hot, [](const Tensor& t) { return t.t(); }},
        {"detach", 1, hot, [](const Tensor& t) { return t.detach(); }},
        {"mm", 1, hot, [&](const Tensor& t) { return t.mm(columns); }},
        {"linear", 1, hot, [&](const Tensor& t) { return torch::linear(t, weight, bias); }},
        {"threshold_backward", 1, hot,
         [](const Tensor& t) { return torch::threshold_backward(t, t, 0); }},
        {"tanh", 1, other, [](const Tensor& t) { return torch::tanh(t); }},
        {"sub", 1, other, [](const Tensor& t) { return t - t; }},
        {"mul by a number", 1, other, [](const Tensor& t) { return t * 0.5; }},
        {"transpose", 1, other, [](const Tensor& t) { return t.transpose(0, 1); }},
        {"slice", 1, other, [](const Tensor& t) { return t.slice(1, 0, 32); }},
        {"permute", 1, other, [](const Tensor& t) { return t.permute({1, 0}); }},
        {"amax", 1, other, [](const Tensor& t) { return t.amax(1); }},
        {"softmax", 1, other, [](const Tensor& t) { return t.softmax(1); }},
        {"mean(1)", 1, other, [](const Tensor& t) { return t.mean(1); }},
        {"sub_", 1, other, [](Tensor t) { return t.sub_(t, 1e-9); }},
    };
    for (const auto& one : cases) {
      if (!only.empty() && only != one.name) {
        continue;
      }
      const auto loop = [&](const Tensor& t) {
        return [&one, t] {
          for (int i = 0; i < 500; ++i) {
            one.call(t);
          }
        };
      };
      const auto [plain, distributed] = least(rounds, loop(x), loop(y));
      const double beyond = (distributed - plain) / 500 / one.operators;
      std::printf(
          "%-18s plain %6.3f us, distributed %6.3f us: + %.3f us", one.name,
          plain / 500, distributed / 500, beyond);
      good = verdict(beyond, one.wanted) && good;
    }
  }

  if (!only.empty() && only != "step") {
    return good ? 0 : 1;
  }
  auto net = bench::small_layers();
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  const auto input = torch::randn({8, 16});
  const auto step_on = [&](const Tensor& batch) {
    return [&, batch] {
      optimizer.zero_grad();
      net->forward(batch).pow(2).mean().backward();
      optimizer.step();
    };
  };
  // Gradients of a distributed batch are parts of sums; plain again, as
  // accelerator.backward leaves them, before the optimizer reads them.
  auto parameters = net->parameters();
  const auto distributed_step = [&, batch = cut(input)] {
    optimizer.zero_grad();
    net->forward(batch).pow(2).mean().backward();
    for (auto& parameter : parameters) {
      parameter.mutable_grad() = dist::to_local(parameter.grad());
    }
    optimizer.step();
  };
  const auto [plain, distributed] = least(rounds, step_on(input), distributed_step);
  std::printf(
      "step of 200 layers: plain %.0f us, distributed %.0f us: %.3f of plain", plain,
      distributed, distributed / plain);
  good = verdict(distributed / plain, 1.08) && good;
  return good ? 0 : 1;
}
