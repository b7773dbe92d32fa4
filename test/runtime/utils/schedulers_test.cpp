// The curves of the schedulers, against the closed forms of PyTorch's
// documentation (the implementation multiplies from step to step), against
// numbers worked out by hand, and against what Python recorded.

#include "support.h"

#include <accel/optim/schedulers.h>

#include <torch/torch.h>

#include <cmath>
#include <functional>

using namespace accel::optim;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

const double kPi = std::acos(-1.0);

std::vector<torch::Tensor> parameter() {
  return {torch::zeros({2})};
}

SGD sgd(double lr) {
  return SGD(parameter(), SGDOptions(lr));
}

double lr_of(const torch::optim::Optimizer& optimizer, size_t group = 0) {
  return optimizer.param_groups()[group].options().get_lr();
}

/// Compares epochs 0 … `epochs` with `expected(epoch)`.
void expect_curve(
    torch::optim::Optimizer& optimizer,
    LRScheduler& scheduler,
    int epochs,
    const std::function<double(int)>& expected) {
  for (int epoch = 0; epoch <= epochs; ++epoch) {
    ASSERT_EQ(scheduler.last_epoch(), epoch);
    const double want = expected(epoch);
    ASSERT_NEAR(lr_of(optimizer), want, 1e-12 + 1e-10 * std::abs(want))
        << "epoch " << epoch;
    ASSERT_EQ(scheduler.get_last_lr(), std::vector<double>{lr_of(optimizer)});
    if (epoch < epochs) {
      scheduler.step();
    }
  }
}

} // namespace

TEST(Schedulers, Lambda) {
  auto optimizer = sgd(0.5);
  LambdaLR scheduler(
      optimizer, [](int64_t epoch) { return 1.0 / (epoch + 1); });
  expect_curve(
      optimizer, scheduler, 5, [](int epoch) { return 0.5 / (epoch + 1); });
}

TEST(Schedulers, LambdaPerParameterGroup) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(parameter(), std::make_unique<SGDOptions>(1.0));
  groups.emplace_back(parameter(), std::make_unique<SGDOptions>(10.0));
  SGD optimizer(groups, SGDOptions(1.0));
  LambdaLR scheduler(
      optimizer,
      std::vector<LRLambda>{
          [](int64_t epoch) { return std::pow(0.5, epoch); },
          [](int64_t epoch) { return epoch; }});
  EXPECT_EQ(scheduler.get_last_lr(), (std::vector<double>{1.0, 0.0}));
  scheduler.step();
  scheduler.step();
  EXPECT_EQ(scheduler.get_last_lr(), (std::vector<double>{0.25, 20.0}));

  EXPECT_THROWS_WITH(
      LambdaLR(optimizer, std::vector<LRLambda>{[](int64_t) { return 1.0; }}),
      "one function per parameter group, 2, but got 1");
}

TEST(Schedulers, StepCountsAsPythonDoes) {
  auto optimizer = sgd(0.05);
  StepLR scheduler(optimizer, 3);
  // From PyTorch's documentation of StepLR, with step_size 3 for 30.
  expect_curve(optimizer, scheduler, 8, [](int epoch) {
    return epoch < 3 ? 0.05 : epoch < 6 ? 0.005 : 0.0005;
  });
}

TEST(Schedulers, MultiStep) {
  auto optimizer = sgd(1.0);
  MultiStepLR scheduler(optimizer, {5, 2, 5}, 0.5);
  expect_curve(optimizer, scheduler, 7, [](int epoch) {
    return epoch < 2 ? 1.0 : epoch < 5 ? 0.5 : 0.125;
  });
}

TEST(Schedulers, Exponential) {
  auto optimizer = sgd(0.3);
  ExponentialLR scheduler(optimizer, 0.9);
  expect_curve(optimizer, scheduler, 50, [](int epoch) {
    return 0.3 * std::pow(0.9, epoch);
  });
}

TEST(Schedulers, Constant) {
  auto optimizer = sgd(0.05);
  ConstantLR scheduler(optimizer, 0.5, 4);
  expect_curve(optimizer, scheduler, 6, [](int epoch) {
    return epoch < 4 ? 0.025 : 0.05;
  });
}

TEST(Schedulers, Linear) {
  auto optimizer = sgd(0.05);
  LinearLR scheduler(
      optimizer, LinearLROptions().start_factor(0.5).total_iters(4));
  const double documented[] = {0.025, 0.03125, 0.0375, 0.04375, 0.05, 0.05};
  expect_curve(
      optimizer, scheduler, 5, [&](int epoch) { return documented[epoch]; });

  auto falling = sgd(2.0);
  LinearLR fall(
      falling,
      LinearLROptions().start_factor(1.0).end_factor(0.0).total_iters(10));
  expect_curve(falling, fall, 12, [](int epoch) {
    return 2.0 * std::max(0.0, 1.0 - epoch / 10.0);
  });
}

TEST(Schedulers, Polynomial) {
  auto optimizer = sgd(0.05);
  PolynomialLR scheduler(optimizer, 4, 1.0);
  const double documented[] = {0.05, 0.0375, 0.025, 0.0125, 0.0, 0.0};
  expect_curve(
      optimizer, scheduler, 5, [&](int epoch) { return documented[epoch]; });

  auto squared = sgd(1.0);
  PolynomialLR square(squared, 20, 2.0);
  expect_curve(squared, square, 25, [](int epoch) {
    return std::pow(1.0 - std::min(epoch, 20) / 20.0, 2.0);
  });
}

TEST(Schedulers, CosineAnnealing) {
  for (const double eta_min : {0.0, 0.01}) {
    for (const int T_max : {1, 7, 10}) {
      auto optimizer = sgd(0.1);
      CosineAnnealingLR scheduler(optimizer, T_max, eta_min);
      // Down, up, and down again.
      expect_curve(optimizer, scheduler, 3 * T_max + 2, [&](int epoch) {
        return eta_min +
               (0.1 - eta_min) * (1 + std::cos(kPi * epoch / T_max)) / 2;
      });
    }
  }
}

TEST(Schedulers, CosineAnnealingWarmRestarts) {
  auto optimizer = sgd(0.1);
  CosineAnnealingWarmRestarts scheduler(optimizer, 3, 2, 0.001);
  // Periods of 3, 6 and 12 epochs begin at 0, 3 and 9.
  expect_curve(optimizer, scheduler, 20, [](int epoch) {
    const double begin = epoch < 3 ? 0 : epoch < 9 ? 3 : 9;
    const double length = epoch < 3 ? 3 : epoch < 9 ? 6 : 12;
    return 0.001 + 0.099 * (1 + std::cos(kPi * (epoch - begin) / length)) / 2;
  });
}

TEST(Schedulers, WarmRestartsAtFractionalEpochs) {
  auto optimizer = sgd(1.0);
  CosineAnnealingWarmRestarts scheduler(optimizer, 10, 10);
  const auto at = [&](double epoch) {
    scheduler.step(epoch);
    return lr_of(optimizer);
  };
  EXPECT_NEAR(at(2.5), (1 + std::cos(kPi / 4)) / 2, 1e-12);
  EXPECT_EQ(scheduler.last_epoch(), 2);
  EXPECT_NEAR(at(9.5), (1 + std::cos(kPi * 0.95)) / 2, 1e-12);
  // 10 + 100 + 1000: where a logarithm instead of a loop rounds down.
  EXPECT_NEAR(at(110.0), 1.0, 1e-12);
  EXPECT_NEAR(at(1110.0), 1.0, 1e-12);
  EXPECT_NEAR(at(60.0), 0.5, 1e-12);
  // And whole steps go on from there.
  scheduler.step();
  EXPECT_NEAR(lr_of(optimizer), (1 + std::cos(kPi * 0.51)) / 2, 1e-12);
  EXPECT_THROWS_WITH(scheduler.step(-1.0), "must not be negative");
}

TEST(Schedulers, OneCycleTwoPhases) {
  // pct_start * total_steps - 1 = 4: the peak is at step 4, the end at 19.
  auto optimizer = SGD(parameter(), SGDOptions(99.0).momentum(0.5));
  OneCycleLR scheduler(
      optimizer,
      OneCycleLROptions(1.0)
          .total_steps(20)
          .pct_start(0.25)
          .div_factor(10.0)
          .final_div_factor(100.0));
  const auto momentum = [&] {
    return static_cast<SGDOptions&>(optimizer.param_groups()[0].options())
        .momentum();
  };
  const auto between = [](double from, double to, double part) {
    return to + (from - to) * (1 + std::cos(kPi * part)) / 2;
  };
  for (int step = 0; step < 20; ++step) {
    const bool rise = step <= 4;
    const double part = rise ? step / 4.0 : (step - 4) / 15.0;
    EXPECT_NEAR(
        lr_of(optimizer),
        rise ? between(0.1, 1.0, part) : between(1.0, 0.001, part),
        1e-12)
        << step;
    EXPECT_NEAR(
        momentum(),
        rise ? between(0.95, 0.85, part) : between(0.85, 0.95, part),
        1e-12)
        << step;
    scheduler.step();
  }
  EXPECT_THROWS_WITH(
      scheduler.step(), "stepped 21 times, but total_steps is 20");
}

TEST(Schedulers, OneCycleThreePhasesLinearOnAdam) {
  // Peak at step 3 (0.2 * 20 - 1), back at the start at 6, end at 19.
  torch::optim::Adam optimizer(parameter(), torch::optim::AdamOptions(7.0));
  OneCycleLR scheduler(
      optimizer,
      OneCycleLROptions(0.5)
          .epochs(4)
          .steps_per_epoch(5)
          .pct_start(0.2)
          .anneal_strategy(OneCycleLROptions::Anneal::kLinear)
          .three_phase(true)
          .div_factor(5.0)
          .final_div_factor(10.0));
  EXPECT_EQ(scheduler.total_steps(), 20);
  const auto beta1 = [&] {
    return std::get<0>(static_cast<torch::optim::AdamOptions&>(
                           optimizer.param_groups()[0].options())
                           .betas());
  };
  std::vector<double> lrs;
  std::vector<double> betas;
  for (int step = 0; step < 20; ++step) {
    lrs.push_back(lr_of(optimizer));
    betas.push_back(beta1());
    scheduler.step();
  }
  EXPECT_NEAR(lrs[0], 0.1, 1e-12);
  EXPECT_NEAR(lrs[3], 0.5, 1e-12);
  EXPECT_NEAR(lrs[5], 0.5 - 0.4 * 2 / 3, 1e-12);
  EXPECT_NEAR(lrs[6], 0.1, 1e-12);
  EXPECT_NEAR(lrs[19], 0.01, 1e-12);
  EXPECT_NEAR(betas[0], 0.95, 1e-12);
  EXPECT_NEAR(betas[3], 0.85, 1e-12);
  EXPECT_NEAR(betas[4], 0.85 + 0.1 / 3, 1e-12);
  EXPECT_NEAR(betas[10], 0.95, 1e-12);
}

TEST(Schedulers, OneCycleRefusesWhatCannotWork) {
  auto optimizer = SGD(parameter(), SGDOptions(1.0).momentum(0.9));
  EXPECT_THROWS_WITH(
      OneCycleLR(optimizer, OneCycleLROptions(1.0)), "give total_steps");
  EXPECT_THROWS_WITH(
      OneCycleLR(
          optimizer, OneCycleLROptions(1.0).total_steps(10).pct_start(1.5)),
      "pct_start must be in [0, 1]");
  // 0.1 * 10 - 1 = 0 steps of warm-up: 0 / 0.
  EXPECT_THROWS_WITH(
      OneCycleLR(
          optimizer, OneCycleLROptions(1.0).total_steps(10).pct_start(0.1)),
      "a phase of the cycle has no steps");
  torch::optim::Adagrad adagrad(parameter(), torch::optim::AdagradOptions(1.0));
  EXPECT_THROWS_WITH(
      OneCycleLR(adagrad, OneCycleLROptions(1.0).total_steps(10)),
      "must have a momentum");
  OneCycleLR(
      adagrad, OneCycleLROptions(1.0).total_steps(10).cycle_momentum(false));
  EXPECT_NEAR(lr_of(adagrad), 1.0 / 25, 1e-12);
}

TEST(Schedulers, WarmUp) {
  auto linear_optimizer = sgd(2.0);
  auto linear = get_linear_schedule_with_warmup(linear_optimizer, 4, 10);
  const double factors[] = {
      0, 0.25, 0.5, 0.75, 1, 5. / 6, 4. / 6, 3. / 6, 2. / 6, 1. / 6, 0, 0};
  expect_curve(linear_optimizer, linear, 11, [&](int step) {
    return 2.0 * factors[step];
  });

  auto cosine_optimizer = sgd(1.0);
  auto cosine = get_cosine_schedule_with_warmup(cosine_optimizer, 2, 6);
  const double half = std::sqrt(0.5);
  const double cosines[] = {0, 0.5, 1, (1 + half) / 2, 0.5, (1 - half) / 2, 0};
  expect_curve(
      cosine_optimizer, cosine, 6, [&](int step) { return cosines[step]; });

  auto constant_optimizer = sgd(1.0);
  auto constant = get_constant_schedule_with_warmup(constant_optimizer, 2);
  expect_curve(constant_optimizer, constant, 4, [](int step) {
    return std::min(1.0, step / 2.0);
  });

  auto none_optimizer = sgd(1.0);
  auto none = get_linear_schedule_with_warmup(none_optimizer, 0, 4);
  expect_curve(
      none_optimizer, none, 4, [](int step) { return 1.0 - step / 4.0; });
}

TEST(Schedulers, FactorsOfChainedSchedulersMultiply) {
  // PyTorch's documentation of chaining, both stepped each epoch.
  auto optimizer = sgd(0.1);
  ExponentialLR decay(optimizer, 0.9);
  ConstantLR warm_up(optimizer, 0.5, 2);
  EXPECT_EQ(warm_up.base_lrs(), std::vector<double>{0.1});
  for (int epoch = 0; epoch < 5; ++epoch) {
    EXPECT_NEAR(
        lr_of(optimizer),
        0.1 * std::pow(0.9, epoch) * (epoch < 2 ? 0.5 : 1.0),
        1e-12);
    decay.step();
    warm_up.step();
  }
}

TEST(Schedulers, BaseLearningRateIsTheOneBeforeScheduling) {
  auto optimizer = sgd(0.3);
  {
    LinearLR warm_up(optimizer);
    EXPECT_NEAR(lr_of(optimizer), 0.1, 1e-12);
    LambdaLR later(optimizer, [](int64_t) { return 1.0; });
    EXPECT_NEAR(lr_of(optimizer), 0.3, 1e-12);
    // What the user sets by hand counts.
    optimizer.param_groups()[0].options().set_lr(0.7);
    ExponentialLR by_hand(optimizer, 0.5);
    EXPECT_EQ(by_hand.base_lrs(), std::vector<double>{0.7});
  }
  ExponentialLR afterwards(optimizer, 0.5);
  EXPECT_EQ(afterwards.base_lrs(), std::vector<double>{0.7});
}

TEST(Schedulers, Sequential) {
  // PyTorch's documentation of SequentialLR, with milestone 3 for 20.
  auto optimizer = sgd(0.05);
  auto first = std::make_shared<ConstantLR>(optimizer, 0.1, 3);
  auto second = std::make_shared<ExponentialLR>(optimizer, 0.9);
  SequentialLR scheduler(optimizer, {first, second}, {3});
  expect_curve(optimizer, scheduler, 8, [](int epoch) {
    return epoch < 3 ? 0.005 : 0.05 * std::pow(0.9, epoch - 3);
  });

  auto other = sgd(1.0);
  SequentialLR warm_cosine(
      other,
      {std::make_shared<LinearLR>(
           other, LinearLROptions().start_factor(0.2).total_iters(4)),
       std::make_shared<CosineAnnealingLR>(other, 6),
       std::make_shared<LambdaLR>(other, [](int64_t epoch) { return epoch; })},
      {4, 10});
  expect_curve(other, warm_cosine, 12, [](int epoch) {
    return epoch < 4    ? 0.2 + 0.2 * epoch
           : epoch < 10 ? (1 + std::cos(kPi * (epoch - 4) / 6)) / 2
                        : epoch - 10.0;
  });

  EXPECT_THROWS_WITH(
      SequentialLR(optimizer, {first, second}, {}), "2 schedulers need 1");
  EXPECT_THROWS_WITH(
      SequentialLR(optimizer, {first, second}, {0}),
      "must be positive and increasing");
  EXPECT_THROWS_WITH(
      SequentialLR(other, {first, second}, {1}), "on another optimizer");
}

TEST(Schedulers, Plateau) {
  auto optimizer = sgd(1.0);
  ReduceLROnPlateau scheduler(
      optimizer,
      ReduceLROnPlateauOptions().factor(0.5).patience(1).cooldown(1).min_lr(
          {0.2}));
  // metric, learning rate afterwards
  const std::vector<std::pair<double, double>> steps{
      {10, 1.0},            // best
      {9, 1.0},             // better
      {8.9999, 1.0},        // better by less than 1e-4 of it: first bad epoch
      {9, 0.5},             // second: reduced
      {9, 0.5},             // cooling down
      {9, 0.5},             // first bad
      {std::nan(""), 0.25}, // second
      {1, 0.25},            // cooling down, and a new best
      {2, 0.25},
      {2, 0.2}}; // not below min_lr
  for (const auto& [metric, lr] : steps) {
    scheduler.step(metric);
    EXPECT_EQ(lr_of(optimizer), lr) << "epoch " << scheduler.last_epoch();
  }

  auto maximizing = sgd(1.0);
  ReduceLROnPlateau up(
      maximizing,
      ReduceLROnPlateauOptions()
          .mode(ReduceLROnPlateauOptions::Mode::kMax)
          .threshold_mode(ReduceLROnPlateauOptions::ThresholdMode::kAbs)
          .threshold(0.5)
          .patience(0));
  up.step(1.0);
  up.step(1.6);
  EXPECT_EQ(lr_of(maximizing), 1.0);
  up.step(2.0);
  EXPECT_NEAR(lr_of(maximizing), 0.1, 1e-15);
}

TEST(Schedulers, ArgumentsAreChecked) {
  auto optimizer = sgd(1.0);
  EXPECT_THROWS_WITH(StepLR(optimizer, 0), "step_size must be at least 1");
  EXPECT_THROWS_WITH(ConstantLR(optimizer, 0.0, 3), "factor must be in (0, 1]");
  EXPECT_THROWS_WITH(ConstantLR(optimizer, 0.5, 0), "total_iters");
  EXPECT_THROWS_WITH(
      LinearLR(optimizer, LinearLROptions().start_factor(0.0)),
      "start_factor must be in (0, 1]");
  EXPECT_THROWS_WITH(CosineAnnealingLR(optimizer, 0), "T_max must be");
  EXPECT_THROWS_WITH(CosineAnnealingWarmRestarts(optimizer, 0), "T_0 must be");
  EXPECT_THROWS_WITH(PolynomialLR(optimizer, 5, -1.0), "power must be");
  EXPECT_THROWS_WITH(LambdaLR(optimizer, LRLambda()), "function is empty");
  // A refused scheduler leaves the learning rate alone.
  EXPECT_EQ(lr_of(optimizer), 1.0);
}

TEST(Schedulers, AddedParameterGroupIsRefused) {
  auto optimizer = sgd(1.0);
  ExponentialLR scheduler(optimizer, 0.5);
  optimizer.add_param_group(torch::optim::OptimizerParamGroup(
      parameter(), std::make_unique<SGDOptions>(1.0)));
  EXPECT_THROWS_WITH(scheduler.step(), "Add all groups before");
}

// What Python printed, by steps taken: `lr_stepcount` holds the learning rate
// and `_step_count`, which is one more than the steps.
TEST(Schedulers, RecordedFromPython) {
  size_t compared = 0;
  for (const auto& record : test::golden_of_all("mp", ".json", "schedulers")) {
    // Accelerate counts steps that it does not take when `adjust` is set.
    if (record.at("k") != 1) {
      continue;
    }
    const std::string kind = record.at("kind");
    const bool one_cycle = kind == "onecycle";
    auto optimizer = SGD(parameter(), SGDOptions(1.0).momentum(0.9));
    std::unique_ptr<LRScheduler> scheduler;
    if (kind == "lambda") {
      scheduler = std::make_unique<LambdaLR>(
          optimizer, [](int64_t epoch) { return epoch; });
    } else if (one_cycle) {
      scheduler = std::make_unique<OneCycleLR>(
          optimizer, OneCycleLROptions(1.0).total_steps(12));
    } else {
      ASSERT_EQ(kind, "step");
      scheduler = std::make_unique<StepLR>(optimizer, 3, 0.5);
    }
    for (const auto& pair : record.at("lr_stepcount")) {
      const int64_t step_count = pair.at(1);
      while (scheduler->step_count() < step_count) {
        scheduler->step();
      }
      EXPECT_NEAR(lr_of(optimizer), pair.at(0).get<double>(), 1e-9)
          << kind << " at " << step_count;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100u);
}
