#pragma once

// A small training on simulated devices, and what plain LibTorch makes of it.

#include "../runtime/expectations.h"
#include "../runtime/multiprocess.h"
#include "sim/sim.h"

#include <accel/accel.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace accel::sim::test {

using torch::Tensor;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        last(register_module("last", torch::nn::Linear(8, 2))) {}
  Tensor forward(const Tensor& x) {
    return last->forward(torch::tanh(norm->forward(first->forward(x))));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

inline Net net_of(torch::ScalarType dtype) {
  torch::manual_seed(3);
  Net net;
  net->to(dtype);
  return net;
}

/// 10 rows; every third batch has 7.
inline Tensor inputs(int64_t step) {
  const int64_t rows = step % 3 == 2 ? 7 : 10;
  return torch::arange(rows * 6, torch::kDouble)
      .add(static_cast<double>(step) * 1.7)
      .sin()
      .reshape({rows, 6});
}
inline Tensor targets(const Tensor& x) {
  return x.slice(1, 0, 2).pow(2);
}

/// Plain LibTorch on the CPU: the losses of so many micro-steps, of which each
/// `window` make a step.
inline std::vector<double> plain_losses(int64_t steps, int64_t window = 1) {
  auto net = net_of(torch::kDouble);
  torch::optim::Adam optimizer(net->parameters(), 0.05);
  std::vector<double> losses;
  for (int64_t i = 0; i < steps; ++i) {
    const auto x = inputs(i);
    const auto loss = torch::mse_loss(net->forward(x), targets(x));
    (loss / window).backward();
    if (i % window == window - 1) {
      optimizer.step();
      optimizer.zero_grad();
    }
    losses.push_back(loss.item<double>());
  }
  return losses;
}

/// The same as accel's training, from micro-step `begin` on.
struct Training {
  explicit Training(
      const AcceleratorOptions& options,
      torch::ScalarType dtype = torch::kDouble)
      : accelerator(options),
        net(net_of(dtype)),
        optimizer(net->parameters(), torch::optim::AdamOptions(0.05)),
        dtype(dtype) {
    accelerator.prepare(net, optimizer);
  }
  double step(int64_t i) {
    auto guard = accelerator.accumulate(net);
    const auto host = inputs(i).to(dtype);
    const auto x = accelerator.distribute(
        accelerator.send_to_device(host, /*non_blocking=*/true));
    const auto y = accelerator.distribute(targets(host).to(accelerator.device()));
    const auto loss = torch::mse_loss(net->forward(x), y);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    return loss.item<double>();
  }
  void expect(const std::vector<double>& losses, int64_t begin = 0) {
    for (size_t i = static_cast<size_t>(begin); i < losses.size(); ++i) {
      EXPECT_NEAR(step(static_cast<int64_t>(i)), losses[i], 1e-9 * losses[i])
          << "micro-step " << i << " on " << accelerator.device();
    }
  }
  Accelerator accelerator;
  Net net;
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer;
  torch::ScalarType dtype;
};

inline AcceleratorOptions matching() {
  return AcceleratorOptions().match_single_device(true).bucket_cap_mb(0.0005);
}

/// The stream of the process's device that it uses now.
inline c10::Stream stream_of(const Accelerator& accelerator) {
  return c10::impl::VirtualGuardImpl(sim::kSim).getStream(accelerator.device());
}

inline std::string folder() {
  return std::getenv("ACCEL_TEST_FOLDER");
}

/// The numbers of devices that a test is run on: those of ACCEL_SIM_COUNTS
/// ("1,2,4", in the group `more`) that are enough, else the usual ones.
inline std::vector<int> counts(std::vector<int> usual, int least = 1) {
  const char* asked = std::getenv("ACCEL_SIM_COUNTS");
  if (asked == nullptr) {
    return usual;
  }
  std::vector<int> all;
  std::istringstream text(asked);
  for (std::string number; std::getline(text, number, ',');) {
    if (std::stoi(number) >= least) {
      all.push_back(std::stoi(number));
    }
  }
  return all;
}

inline accel::test::RunOptions devices(int count) {
  accel::test::RunOptions options;
  options.environment["ACCEL_SIM_DEVICES"] = std::to_string(count);
  options.environment["ACCEL_SIM_LATENCY_US"] = "1000";
  return options;
}

/// A folder that the processes of a test share; in them it is `folder()`.
class SharedFolder {
 public:
  SharedFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("accel-sim-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~SharedFolder() {
    std::filesystem::remove_all(path_);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  /// As `devices`, for processes that use it.
  accel::test::RunOptions on_devices(int count) const {
    auto options = devices(count);
    options.environment["ACCEL_TEST_FOLDER"] = path_.string();
    return options;
  }

 private:
  std::filesystem::path path_;
};

} // namespace accel::sim::test
