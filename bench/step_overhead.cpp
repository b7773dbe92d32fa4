// What accel costs per training step, as a ratio to plain LibTorch in the same
// run: `rounds` times a block of plain steps, then a block of accel steps; the
// medians are compared. On one process nothing is exchanged, so the ratio is
// pure overhead; on N processes it contains the averaging of gradients.
//
//   step_overhead [--model small|mlp] [--mode accelerate|single] [--rounds N] [--steps N]
//   accel launch -n 2 --output main -- ./step_overhead
//
// Mode `accelerate` (the default): each process has a batch of 8 of its own.
// `single`: with `match_single_device`, one batch, of which each process has 8
// rows; plain LibTorch does 8 rows.

#include "models.h"

#include <accel/accel.h>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using bench::mlp;
using bench::small_layers;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Step>
double microseconds_per_step(int steps, Step step) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    step();
  }
  const std::chrono::duration<double, std::micro> spent =
      std::chrono::steady_clock::now() - start;
  return spent.count() / steps;
}

} // namespace

int main(int argc, char** argv) {
  std::string model = "small";
  std::string mode = "accelerate";
  int rounds = 7;
  int steps = 40;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string arg = argv[i];
    if (arg == "--model") {
      model = argv[i + 1];
    } else if (arg == "--mode") {
      mode = argv[i + 1];
    } else if (arg == "--rounds") {
      rounds = std::max(1, std::atoi(argv[i + 1]));
    } else if (arg == "--steps") {
      steps = std::max(1, std::atoi(argv[i + 1]));
    } else {
      std::fprintf(stderr, "step_overhead: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (model != "small" && model != "mlp") {
    std::fprintf(stderr, "step_overhead: no model '%s'\n", model.c_str());
    return 2;
  }
  if (mode != "accelerate" && mode != "single") {
    std::fprintf(stderr, "step_overhead: no mode '%s'\n", mode.c_str());
    return 2;
  }

  accel::Accelerator accelerator(
      accel::AcceleratorOptions().match_single_device(mode == "single"));
  torch::manual_seed(0);
  auto plain_net = model == "small" ? small_layers() : mlp();
  auto accel_net = model == "small" ? small_layers() : mlp();
  const int64_t features = model == "small" ? 16 : 1024;
  auto input = torch::randn({8, features});
  auto batch = mode == "single"
      ? accelerator.distribute(
            torch::randn({8 * accelerator.num_processes(), features}))
      : input;
  torch::optim::SGD plain_optimizer(plain_net->parameters(), 1e-3);
  accel::AcceleratedOptimizer<torch::optim::SGD> accel_optimizer(
      accel_net->parameters(), 1e-3);
  accelerator.prepare(accel_net, accel_optimizer);

  const auto plain = [&] {
    auto loss = plain_net->forward(input).pow(2).mean();
    plain_optimizer.zero_grad();
    loss.backward();
    plain_optimizer.step();
  };
  const auto accelerated = [&] {
    auto step = accelerator.accumulate(accel_net);
    auto loss = accel_net->forward(batch).pow(2).mean();
    accel_optimizer.zero_grad();
    accelerator.backward(loss);
    accel_optimizer.step();
  };

  microseconds_per_step(steps / 4 + 1, plain);
  microseconds_per_step(steps / 4 + 1, accelerated);
  std::vector<double> plain_times, accel_times;
  for (int round = 0; round < rounds; ++round) {
    accelerator.wait_for_everyone();
    plain_times.push_back(microseconds_per_step(steps, plain));
    accelerator.wait_for_everyone();
    accel_times.push_back(microseconds_per_step(steps, accelerated));
  }
  accelerator.printf(
      "%s, %lld process(es): plain LibTorch %.0f us/step, accel %.0f us/step, ratio %.3f\n",
      model.c_str(),
      static_cast<long long>(accelerator.num_processes()),
      median(plain_times),
      median(accel_times),
      median(accel_times) / median(plain_times));
}
