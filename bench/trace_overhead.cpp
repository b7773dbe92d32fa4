// A training step in plain LibTorch, timed; bench/trace_overhead.py runs it with
// and without the library that `accel verify` loads, in turns.
//
//   trace_overhead small|mlp|conv STEPS      prints microseconds per step
//
// Of processor time, with one thread: other programs count for less.

#include "models.h"

#include <torch/torch.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using bench::mlp;
using bench::small_layers;

// Much arithmetic for few parameters.
torch::nn::Sequential conv() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 32, 3).padding(1)),
      torch::nn::BatchNorm2d(32),
      torch::nn::ReLU(),
      torch::nn::MaxPool2d(2),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3).padding(1)),
      torch::nn::BatchNorm2d(64),
      torch::nn::ReLU(),
      torch::nn::AdaptiveAvgPool2d(1),
      torch::nn::Flatten(),
      torch::nn::Linear(64, 10));
}

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) +
      1e-3 * static_cast<double>(time.tv_nsec);
}

} // namespace

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 0;
  if ((model != "small" && model != "mlp" && model != "conv") || steps < 1) {
    std::fprintf(stderr, "usage: trace_overhead small|mlp|conv STEPS\n");
    return 2;
  }
  torch::set_num_threads(1);
  torch::manual_seed(0);
  auto net = model == "small" ? small_layers()
      : model == "mlp"        ? mlp()
                              : conv();
  const auto input = model == "small" ? torch::randn({8, 16})
      : model == "mlp"                ? torch::randn({64, 1024})
                                      : torch::randn({16, 3, 32, 32});
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  std::vector<double> times;
  for (int step = 0; step < steps + 5; ++step) {
    const double start = now();
    auto loss = net->forward(input).pow(2).mean();
    optimizer.zero_grad();
    loss.item<float>(); // programs read their loss
    loss.backward();
    optimizer.step();
    if (step >= 5) { // memory is being allocated before
      times.push_back(now() - start);
    }
  }
  std::nth_element(
      times.begin(), times.begin() + times.size() / 2, times.end());
  std::printf("%.1f\n", times[times.size() / 2]);
}
