// LOMO: parameters are updated while backward goes on.

#include "training.h"

#include <accel/lomo.h>

#include <malloc.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace accel::test {
namespace {

constexpr double kRate = 0.02;

/// The same by hand: backward, clip, update.
double plain_step(const std::shared_ptr<Net>& net, int64_t i, const LomoOptions& options) {
  const auto x = words(i);
  const auto loss = torch::mse_loss(net->forward(x), target(x));
  net->zero_grad();
  loss.backward();
  torch::NoGradGuard no_grad;
  if (const auto norm = options.clip_grad_norm()) {
    nn::utils::clip_grad_norm_(net->parameters(), *norm);
  }
  if (const auto value = options.clip_grad_value()) {
    nn::utils::clip_grad_value_(net->parameters(), *value);
  }
  for (auto& parameter : net->parameters()) {
    if (parameter.grad().defined()) {
      parameter.add_(parameter.grad(), -kRate);
    }
  }
  return loss.item<double>();
}

double lomo_step(
    Accelerator& accelerator,
    const std::shared_ptr<Net>& net,
    int64_t i,
    const LomoOptions& options) {
  const auto x = words(i);
  const auto loss = torch::mse_loss(
      net->forward(accelerator.distribute(x)), accelerator.distribute(target(x)));
  lomo_backward(loss, kRate, options);
  for (const auto& parameter : net->parameters()) {
    EXPECT_FALSE(parameter.grad().defined());
  }
  return loss.item<double>();
}

/// As the environment says.
ACCEL_RANK_FUNCTION(lomo_trains) {
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  for (const auto& options :
       {LomoOptions(), LomoOptions().clip_grad_value(0.01),
        LomoOptions().clip_grad_norm(0.1), LomoOptions().clip_grad_norm(1e6)}) {
    const auto plain = std::make_shared<Net>();
    const auto net = std::make_shared<Net>();
    accelerator.prepare(net);
    for (int64_t i = 0; i < 6; ++i) {
      const double expected = plain_step(plain, i, options);
      EXPECT_NEAR(lomo_step(accelerator, net, i, options), expected, 1e-12);
    }
    expect_equal(*net, *plain, 1e-12);
    // Ordinary training goes on as if there had been none.
    expect_goes_on_like(accelerator, net, plain);
  }
}

TEST(Lomo, TrainsLikeOneDevice) {
  const auto with = [](int processes, std::map<std::string, std::optional<std::string>> environment) {
    RunOptions options;
    options.timeout = std::chrono::seconds(240);
    options.environment = std::move(environment);
    run_and_expect_success("lomo_trains", processes, options);
  };
  const auto mesh = [](const char* replicate, const char* shard, const char* tensor) {
    return std::map<std::string, std::optional<std::string>>{
        {"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
        {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE", replicate},
        {"PARALLELISM_CONFIG_DP_SHARD_SIZE", shard},
        {"PARALLELISM_CONFIG_TP_SIZE", tensor}};
  };
  for (const int processes : {1, 2, 3}) {
    with(processes, {});
    with(processes, {{"ACCELERATE_USE_FSDP", "true"}});
    with(processes, {{"ACCELERATE_USE_FSDP", "true"}, {"FSDP_SHARDING_STRATEGY", "SHARD_GRAD_OP"}});
  }
  with(4, mesh("2", "2", "1"));
  with(2, mesh("1", "1", "2"));
  with(4, mesh("1", "2", "2"));
}

/// Batches of each process's own: gradients are averaged, as `backward` does it.
ACCEL_RANK_FUNCTION(lomo_averages) {
  Accelerator accelerator;
  const auto n = accelerator.num_processes();
  torch::manual_seed(1);
  nn::Linear net(3, 2);
  accelerator.prepare(net);
  const auto before = net->weight.detach().clone();
  Tensor mean = torch::zeros_like(before);
  for (int64_t rank = 0; rank < n; ++rank) {
    mean += torch::ones({2, 3}) * static_cast<double>(rank + 1) / n;
  }
  const auto x = torch::ones({1, 3}) * (accelerator.process_index() + 1);
  lomo_backward(net->forward(x).sum(), 0.5);
  EXPECT_TRUE(torch::allclose(net->weight, before - 0.5 * mean));
}

TEST(Lomo, AveragesTheProcessesGradients) {
  for (const int processes : {1, 2, 3}) {
    run_and_expect_success("lomo_averages", processes);
  }
}

ACCEL_RANK_FUNCTION(lomo_refuses) {
  {
    Accelerator accelerator(AcceleratorOptions().gradient_accumulation_steps(2));
    nn::Linear net(3, 2);
    accelerator.prepare(net);
    expect_error(
        [&] { lomo_backward(net->forward(torch::ones({1, 3})).sum(), 0.5); },
        "gradient_accumulation_steps is 2");
  }
  Accelerator accelerator;
  expect_error([&] { lomo_backward(torch::ones({}), 0.5); }, "there are none");
  nn::Linear net(3, 2);
  accelerator.prepare(net);
  const auto loss = net->forward(torch::ones({1, 3})).sum();
  expect_error([&] { lomo_backward(net->forward(torch::ones({1, 3})), 0.5); }, "[1, 2]");
  expect_error([&] { lomo_backward(loss, 0.5, LomoOptions().clip_grad_norm(0)); }, "clip gradients at 0");
  expect_error([&] { lomo_backward(loss, NAN); }, "learning rate nan");
  net->weight.mutable_grad() = torch::ones({2, 3});
  expect_error([&] { lomo_backward(loss, 0.5); }, "zero_grad()");
}

TEST(Lomo, RefusesWhatItCannotDo) {
  run_and_expect_success("lomo_refuses", 1);
}

/// What backward takes above 12 layers of 4 MiB.
ACCEL_RANK_FUNCTION(lomo_memory) {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 16);
  torch::set_num_threads(1);
  Accelerator accelerator(AcceleratorOptions().match_single_device(true));
  const bool lomo = std::string(std::getenv("LOMO_HOW")) == "lomo";
  nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(nn::Linear(nn::LinearOptions(1024, 1024).bias(false)));
  }
  AcceleratedOptimizer<optim::SGD> optimizer(net->parameters(), 1e-3);
  accelerator.prepare(net, optimizer);
  const auto x = torch::randn({8, 1024});
  double before = 0;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    const auto loss = net->forward(accelerator.distribute(x)).pow(2).mean();
    if (i == 1) { // behind the first step everything else is there
      std::ofstream("/proc/self/clear_refs") << 5;
      before = megabytes("VmRSS:");
    }
    if (lomo) {
      lomo_backward(loss, 1e-3);
    } else {
      accelerator.backward(loss);
      optimizer.step();
    }
  }
  std::cout << megabytes("VmHWM:") - before << std::endl;
}

TEST(Lomo, KeepsNoGradients) {
  const auto peak = [](const char* how) {
    RunOptions options;
    options.environment["LOMO_HOW"] = how;
    const double result = std::atof(
        run_and_expect_success("lomo_memory", 1, options).at(0).output.c_str());
    std::cout << how << ": " << result << " MB\n";
    return result;
  };
  EXPECT_GT(peak("backward"), 44); // 48 MiB of gradients
  EXPECT_LT(peak("lomo"), 16);
}

} // namespace
} // namespace accel::test
