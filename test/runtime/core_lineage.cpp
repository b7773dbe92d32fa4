// Numbers and plain tensors that enter operators with distributed ones must be the same on
// all processes: where one has others, the next backward says so, and which.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <string>

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;

namespace {

/// What a program's step may do otherwise on one process.
struct Step {
  int64_t rank = 0;
  torch::nn::Linear net{nullptr};
  torch::optim::Adam* optimizer = nullptr;
  torch::Tensor out;
  torch::Tensor loss;
};

struct Slip {
  std::function<void(Step&)> on_out = [](Step&) {};
  std::function<void(Step&)> on_loss = [](Step&) {};
  std::function<void(Step&)> before_step = [](Step&) {};
  bool skips_zero = false;
};

std::string error_of_training(const Slip& slip) {
  auto options = AcceleratorOptions().match_single_device(true);
  const char* const how = std::getenv("LINEAGE_HOW");
  if (how != nullptr && std::string(how) == "fsdp") {
    options.fsdp_plugin(accel::FullyShardedDataParallelPlugin());
  }
  if (how != nullptr && std::string(how) == "tp") {
    options.parallelism_config(accel::ParallelismConfig().tp_size(2));
    options.torch_tp_plugin(accel::TorchTensorParallelPlugin().tp_size(2));
  }
  Accelerator accelerator(options);
  torch::manual_seed(3);
  Step step;
  step.rank = accelerator.process_index();
  step.net = torch::nn::Linear(6, 4);
  accel::AcceleratedOptimizer<torch::optim::Adam> optimizer(step.net->parameters(), 0.1);
  accelerator.prepare(step.net, optimizer);
  step.optimizer = &optimizer;
  return error_of([&] {
    for (int i = 0; i < 6; ++i) {
      const bool slips = i >= 2;
      const auto x = accelerator.distribute(torch::arange(48.).view({8, 6}).div(48));
      step.out = step.net->forward(x);
      slips ? slip.on_out(step) : void();
      step.loss = step.out.pow(2).mean();
      slips ? slip.on_loss(step) : void();
      if (!slip.skips_zero || !slips || step.rank == 0) {
        optimizer.zero_grad();
      }
      accelerator.backward(step.loss);
      slips ? slip.before_step(step) : void();
      optimizer.step();
    }
  });
}

void expect_error(const Slip& slip, const std::string& part) {
  const auto error = error_of_training(slip);
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

void expect_none(const Slip& slip) {
  EXPECT_EQ(error_of_training(slip), "no error");
}

const char* const kOtherNumbers = "the processes have computed with different numbers";

Slip on_out(std::function<void(Step&)> what) {
  Slip slip;
  slip.on_out = std::move(what);
  return slip;
}

Slip on_loss(std::function<void(Step&)> what) {
  Slip slip;
  slip.on_loss = std::move(what);
  return slip;
}

Slip before_step(std::function<void(Step&)> what) {
  Slip slip;
  slip.before_step = std::move(what);
  return slip;
}

} // namespace

ACCEL_RANK_FUNCTION(scales_activations) {
  expect_error(
      on_out([](Step& step) { step.out = step.out * (1 + 0.5 * step.rank); }),
      "\n  process 0: aten::mul with 1\n  process 1: aten::mul with 1.5\n");
}
ACCEL_RANK_FUNCTION(scales_loss_in_place) {
  expect_error(on_loss([](Step& step) { step.loss.mul_(1 + step.rank); }), kOtherNumbers);
}
ACCEL_RANK_FUNCTION(adds_its_own_tensor) {
  expect_error(
      on_out([](Step& step) { step.out = step.out + torch::full({4}, 0.3 * step.rank); }),
      kOtherNumbers);
}
ACCEL_RANK_FUNCTION(penalizes_by_its_number) {
  expect_error(
      on_loss([](Step& step) {
        step.loss = step.loss + 0.1 * step.rank * step.net->weight.pow(2).sum();
      }),
      kOtherNumbers);
}
ACCEL_RANK_FUNCTION(rolls_by_its_number) {
  expect_error(
      on_out([](Step& step) { step.out = step.out * step.out.roll(step.rank, 1); }),
      kOtherNumbers);
}
ACCEL_RANK_FUNCTION(learns_at_its_rate) {
  expect_error(
      before_step([](Step& step) {
        for (auto& group : step.optimizer->param_groups()) {
          static_cast<torch::optim::AdamOptions&>(group.options()).lr(0.1 * (1 + step.rank));
        }
      }),
      kOtherNumbers);
}
ACCEL_RANK_FUNCTION(edits_gradients) {
  expect_error(
      before_step([](Step& step) {
        step.net->weight.mutable_grad().mul_(1 - 0.1 * static_cast<double>(step.rank));
      }),
      kOtherNumbers);
}
ACCEL_RANK_FUNCTION(keeps_old_gradients) {
  Slip slip;
  slip.skips_zero = true;
  expect_error(slip, "not all processes have a gradient of the parameter 'weight'");
}

/// What only one process has, and nobody trains with; and what differs by rounding.
ACCEL_RANK_FUNCTION(computes_for_itself) {
  expect_none(on_loss([&](Step& step) {
    if (step.rank == 0) {
      (void)(step.loss.detach() * 5);
      (void)step.out.detach().t().mul(7).neg();
    }
    (void)torch::full({3}, static_cast<double>(step.rank)).mul_(step.rank);
  }));
}
ACCEL_RANK_FUNCTION(differs_by_rounding) {
  expect_none(on_out([](Step& step) {
    step.out = step.out * (1 + 1e-12 * static_cast<double>(step.rank));
  }));
}

TEST(Lineage, OtherNumbersOfOneProcessAreAnError) {
  for (const char* how :
       {"scales_activations", "scales_loss_in_place", "adds_its_own_tensor",
        "penalizes_by_its_number", "rolls_by_its_number"}) {
    run_and_expect_success(how, 2);
  }
  run_and_expect_success("scales_activations", 3);
}

TEST(Lineage, SoAreThoseOfParametersInParts) {
  RunOptions options;
  options.environment["LINEAGE_HOW"] = "fsdp";
  for (const char* how :
       {"scales_activations", "penalizes_by_its_number", "learns_at_its_rate",
        "edits_gradients"}) {
    run_and_expect_success(how, 2, options);
  }
}

TEST(Lineage, SoAreThoseThatReachTheLossThroughPlainTensors) {
  RunOptions options;
  options.environment["LINEAGE_HOW"] = "tp";
  run_and_expect_success("penalizes_by_its_number", 2, options);
}

TEST(Lineage, GradientsThatOneProcessAloneHasSetToZeroAreAnError) {
  RunOptions options;
  run_and_expect_success("keeps_old_gradients", 2);
  for (const char* strategy : {"fsdp", "tp"}) {
    options.environment["LINEAGE_HOW"] = strategy;
    run_and_expect_success("keeps_old_gradients", 2, options);
  }
}

TEST(Lineage, WhatOneProcessComputesForItselfIsNone) {
  run_and_expect_success("computes_for_itself", 2);
  run_and_expect_success("differs_by_rounding", 2);
}
