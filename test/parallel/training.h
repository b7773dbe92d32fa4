#pragma once

// A model and its training, in plain LibTorch and with its parameters in parts.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

namespace accel::test {
using torch::Tensor;
namespace nn = torch::nn;
namespace optim = torch::optim;
namespace ad = accel::distributed;

inline AcceleratorOptions sharded(
    std::optional<ShardingStrategy> strategy = std::nullopt) {
  return AcceleratorOptions().match_single_device(true).fsdp_plugin(
      FullyShardedDataParallelPlugin().sharding_strategy(strategy));
}

/// A table that is used twice, a layer that is frozen, one that is not used, and a
/// layer whose output has one row.
struct Net : nn::Module {
  Net() {
    torch::manual_seed(5);
    table = register_module("table", nn::Embedding(7, 6));
    first = register_module("first", nn::Linear(6, 6));
    frozen = register_module("frozen", nn::Linear(6, 6));
    unused = register_module("unused", nn::Linear(6, 6));
    norm = register_module("norm", nn::BatchNorm1d(6));
    last = register_module("last", nn::Linear(7, 1));
    to(torch::kDouble);
    for (auto& parameter : frozen->parameters()) {
      parameter.set_requires_grad(false);
    }
  }
  Tensor forward(const Tensor& words) {
    const auto x = table->forward(words);
    const auto y = torch::tanh(first->forward(x) + frozen->forward(x));
    const auto scores = torch::linear(norm->forward(y), table->weight);
    return last->forward(torch::relu(scores)).squeeze(1);
  }
  nn::Embedding table = nullptr;
  nn::Linear first = nullptr, frozen = nullptr, unused = nullptr, last = nullptr;
  nn::BatchNorm1d norm = nullptr;
};

/// Layers of more than a mebibyte, so that each is a unit.
inline constexpr int64_t kWide = 520;

inline nn::Sequential wide_layers(int64_t layers, int64_t width = kWide) {
  torch::manual_seed(3);
  nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) {
    net->push_back(nn::Linear(width, width));
    net->push_back(nn::Tanh());
  }
  return net;
}

/// The layers of these numbers, one behind the other.
inline Tensor through(nn::Sequential& net, Tensor x, const std::vector<size_t>& layers) {
  for (const size_t layer : layers) {
    x = torch::sin(torch::tanh((*net)[2 * layer]->as<nn::Linear>()->forward(x)));
  }
  return x;
}

/// 10 words a batch; the last batch is shorter.
inline Tensor words(int64_t step) {
  const int64_t n = step % 3 == 2 ? 4 : 10;
  return (torch::arange(n) * (step + 3) + step).remainder(7);
}
inline Tensor target(const Tensor& words) {
  return torch::sin(words.to(torch::kDouble));
}

/// One step of what computes a loss, with the gradients' norm clipped; `run` is null in
/// the plain program. Returns the loss.
template <typename Loss>
double clipped_step(
    Accelerator* run,
    nn::Module& net,
    optim::Optimizer& optimizer,
    double max_norm,
    const Loss& loss_of) {
  optimizer.zero_grad();
  const Tensor loss = loss_of();
  if (run != nullptr) {
    run->backward(loss);
    run->clip_grad_norm_(net.parameters(), max_norm);
  } else {
    loss.backward();
    nn::utils::clip_grad_norm_(net.parameters(), max_norm);
  }
  optimizer.step();
  return loss.item<double>();
}

/// One step; `run` is null in the plain program. Returns the loss.
inline double step(
    Accelerator* run,
    const std::shared_ptr<Net>& net,
    optim::Optimizer& optimizer,
    int64_t i) {
  auto x = words(i);
  auto y = target(x);
  if (run != nullptr) {
    x = run->distribute(x);
    y = run->distribute(y);
  }
  return clipped_step(run, *net, optimizer, 0.5, [&] {
    return torch::mse_loss(net->forward(x), y);
  });
}

inline void expect_equal(const nn::Module& actual, const nn::Module& expected, double tolerance) {
  const auto a = actual.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    const auto whole = ad::full_tensor(a[item.key()].detach());
    EXPECT_TRUE(
        tolerance == 0 ? torch::equal(whole, item.value())
                       : torch::allclose(whole, item.value(), tolerance, tolerance))
        << item.key() << ": " << whole << item.value();
  }
  const auto b = actual.named_buffers();
  for (const auto& item : expected.named_buffers()) {
    EXPECT_TRUE(torch::allclose(
        ad::full_tensor(b[item.key()]).to(torch::kDouble),
        item.value().to(torch::kDouble), tolerance, tolerance))
        << item.key();
  }
}

/// Six steps as `how` says, beside the same in plain LibTorch: equal losses,
/// parameters and buffers. Collective.
template <typename Optimizer, typename Options>
void expect_trains_like_one_device(
    const AcceleratorOptions& how,
    const Options& options) {
  Accelerator accelerator(how);
  const auto plain = std::make_shared<Net>();
  Optimizer plain_optimizer(plain->parameters(), options);
  const auto net = std::make_shared<Net>();
  AcceleratedOptimizer<Optimizer> optimizer(net->parameters(), options);
  accelerator.prepare(net, optimizer);
  expect_equal(*net, *plain, 0); // bit for bit
  for (int64_t i = 0; i < 6; ++i) {
    const double expected = step(nullptr, plain, plain_optimizer, i);
    EXPECT_NEAR(step(&accelerator, net, optimizer, i), expected, 1e-12);
  }
  expect_equal(*net, *plain, 1e-12);
}

/// Three steps of SGD with `net`, as it is now, and beside it with its like in plain
/// LibTorch. Collective.
inline void expect_goes_on_like(
    Accelerator& accelerator,
    const std::shared_ptr<Net>& net,
    const std::shared_ptr<Net>& plain) {
  optim::SGD plain_sgd(plain->parameters(), 0.1);
  AcceleratedOptimizer<optim::SGD> sgd(net->parameters(), 0.1);
  accelerator.prepare(sgd);
  for (int64_t i = 0; i < 3; ++i) {
    const double expected = step(nullptr, plain, plain_sgd, i);
    EXPECT_NEAR(step(&accelerator, net, sgd, i), expected, 1e-12);
  }
  expect_equal(*net, *plain, 1e-12);
}

/// `f` throws a `c10::Error` that says this.
template <typename F>
void expect_error(F&& f, const std::string& part) {
  const auto error = error_of(std::forward<F>(f));
  EXPECT_TRUE(contains(error, part)) << part << "\nis not what is said:\n" << error;
}
inline void expect_refused(
    const AcceleratorOptions& options,
    const std::string& part) {
  expect_error([&] { (void)resolve(options); }, part);
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Of this process, from /proc: "VmRSS:", "VmHWM:".
inline double megabytes(const char* key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) {
      return std::atof(line.c_str() + std::string(key).size()) / 1024;
    }
  }
  return 0;
}

/// For a machine with other work.
inline RunOptions patient(
    std::map<std::string, std::optional<std::string>> environment = {}) {
  RunOptions run;
  run.timeout = std::chrono::seconds(240);
  run.environment = std::move(environment);
  return run;
}

struct Folder {
  Folder() {
    char name[] = "/tmp/accel_sharded_XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() {
    std::filesystem::remove_all(path);
  }
  RunOptions options(std::map<std::string, std::optional<std::string>> more = {}) const {
    RunOptions run;
    run.timeout = std::chrono::seconds(240); // a machine with other work
    run.environment = std::move(more);
    run.environment["SHARDED_FOLDER"] = path;
    return run;
  }
  std::string path;
};

} // namespace accel::test
