// A scheduler that is saved and loaded into a fresh one goes on with the same
// bits.

#include "support.h"

#include <accel/optim/schedulers.h>

#include <torch/torch.h>

#include <functional>

using namespace accel::optim;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

struct Training {
  explicit Training(const std::function<std::shared_ptr<LRScheduler>(
                        torch::optim::Optimizer&)>& make)
      : optimizer({torch::zeros({2})}, SGDOptions(0.7).momentum(0.9)),
        scheduler(make(optimizer)) {}

  std::pair<double, double> values() {
    const auto& options =
        static_cast<SGDOptions&>(optimizer.param_groups()[0].options());
    return {options.lr(), options.momentum()};
  }

  SGD optimizer;
  std::shared_ptr<LRScheduler> scheduler;
};

using Maker =
    std::function<std::shared_ptr<LRScheduler>(torch::optim::Optimizer&)>;

std::map<std::string, Maker> makers() {
  using O = torch::optim::Optimizer;
  return {
      {"lambda",
       [](O& o) {
         return std::make_shared<LambdaLR>(o, linear_with_warmup(3, 20));
       }},
      {"step", [](O& o) { return std::make_shared<StepLR>(o, 3, 0.9); }},
      {"multi_step",
       [](O& o) {
         return std::make_shared<MultiStepLR>(
             o, std::vector<int64_t>{2, 8}, 0.3);
       }},
      {"exponential",
       [](O& o) { return std::make_shared<ExponentialLR>(o, 0.97); }},
      {"constant",
       [](O& o) { return std::make_shared<ConstantLR>(o, 0.3, 8); }},
      {"linear",
       [](O& o) {
         return std::make_shared<LinearLR>(o, LinearLROptions().total_iters(9));
       }},
      {"polynomial",
       [](O& o) { return std::make_shared<PolynomialLR>(o, 15, 0.7); }},
      {"cosine",
       [](O& o) { return std::make_shared<CosineAnnealingLR>(o, 9, 0.01); }},
      {"restarts",
       [](O& o) {
         return std::make_shared<CosineAnnealingWarmRestarts>(o, 3, 2);
       }},
      {"one_cycle",
       [](O& o) {
         return std::make_shared<OneCycleLR>(
             o, OneCycleLROptions(1.0).total_steps(30));
       }},
      {"sequential", [](O& o) {
         return std::make_shared<SequentialLR>(
             o,
             std::vector<std::shared_ptr<LRScheduler>>{
                 std::make_shared<LinearLR>(o),
                 std::make_shared<CosineAnnealingLR>(o, 12)},
             std::vector<int64_t>{8});
       }}};
}

} // namespace

TEST(SchedulerState, ResumedRunGoesOnExactly) {
  for (const auto& [name, make] : makers()) {
    // 5 and 10: before and after the milestone of the sequence.
    for (const int stop : {0, 5, 10}) {
      SCOPED_TRACE(name + " saved at " + std::to_string(stop));
      Training whole(make);
      for (int i = 0; i < stop; ++i) {
        whole.scheduler->step();
      }
      const std::string saved = to_json(whole.scheduler->state_dict());

      Training resumed(make);
      resumed.scheduler->load_state_dict(scheduler_state_from_json(saved));
      EXPECT_EQ(resumed.values(), whole.values());
      EXPECT_EQ(resumed.scheduler->step_count(), whole.scheduler->step_count());
      for (int i = 0; i < 12; ++i) {
        whole.scheduler->step();
        resumed.scheduler->step();
        ASSERT_EQ(resumed.values(), whole.values()) << i;
      }
      EXPECT_EQ(
          to_json(resumed.scheduler->state_dict()),
          to_json(whole.scheduler->state_dict()));
    }
  }
}

TEST(SchedulerState, TorchSaveAndLoad) {
  const auto make = makers().at("sequential");
  const test::TemporaryDirectory directory;
  const auto file = (directory.path() / "scheduler.pt").string();
  Training whole(make);
  for (int i = 0; i < 9; ++i) {
    whole.scheduler->step();
  }
  torch::save(*whole.scheduler, file);
  Training resumed(make);
  torch::load(*resumed.scheduler, file);
  whole.scheduler->step();
  resumed.scheduler->step();
  EXPECT_EQ(resumed.values(), whole.values());
}

TEST(SchedulerState, HandChangedLearningRateSurvives) {
  const auto make = makers().at("exponential");
  Training whole(make);
  whole.scheduler->step();
  whole.optimizer.param_groups()[0].options().set_lr(0.123);
  Training resumed(make);
  resumed.scheduler->load_state_dict(whole.scheduler->state_dict());
  EXPECT_EQ(resumed.values().first, 0.123);
}

TEST(SchedulerState, WrongStatesAreRefused) {
  Training cosine(makers().at("cosine"));
  cosine.scheduler->step();
  const auto before = cosine.values();

  Training other([](torch::optim::Optimizer& o) {
    return std::make_shared<CosineAnnealingLR>(o, 10, 0.01);
  });
  EXPECT_THROWS_WITH(
      cosine.scheduler->load_state_dict(other.scheduler->state_dict()),
      "was saved with T_max = [10], but this one was constructed with [9]");
  Training linear(makers().at("linear"));
  EXPECT_THROWS_WITH(
      cosine.scheduler->load_state_dict(linear.scheduler->state_dict()),
      "state of a LinearLR cannot be loaded into a CosineAnnealingLR");
  auto state = cosine.scheduler->state_dict();
  state.values["lrs"].push_back(1.0);
  EXPECT_THROWS_WITH(
      cosine.scheduler->load_state_dict(state), "2 values of lrs, expected 1");
  state.values.erase("lrs");
  EXPECT_THROWS_WITH(cosine.scheduler->load_state_dict(state), "has no lrs");
  EXPECT_EQ(cosine.values(), before);
  EXPECT_EQ(cosine.scheduler->last_epoch(), 1);

  EXPECT_THROWS_WITH(scheduler_state_from_json("{"), "not the saved state");
  EXPECT_THROWS_WITH(scheduler_state_from_json("[1]"), "not the saved state");
  state.values["lrs"] = {std::nan("")};
  EXPECT_THROWS_WITH(to_json(state), "lrs is nan");
}

TEST(SchedulerState, Plateau) {
  using Options = ReduceLROnPlateauOptions;
  SGD optimizer({torch::zeros({2})}, SGDOptions(0.7));
  ReduceLROnPlateau whole(optimizer, Options().patience(2).cooldown(1));
  for (const double metric : {3.0, 2.0, 2.0}) {
    whole.step(metric);
  }
  SGD fresh({torch::zeros({2})}, SGDOptions(0.7));
  ReduceLROnPlateau resumed(fresh, Options().patience(2).cooldown(1));
  resumed.load_state_dict(
      scheduler_state_from_json(to_json(whole.state_dict())));
  for (const double metric : {2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0}) {
    whole.step(metric);
    resumed.step(metric);
    ASSERT_EQ(resumed.get_last_lr(), whole.get_last_lr());
  }
  EXPECT_LT(whole.get_last_lr()[0], 0.01);
  ReduceLROnPlateau impatient(fresh, Options().patience(1).cooldown(1));
  EXPECT_THROWS_WITH(
      impatient.load_state_dict(whole.state_dict()), "patience = [2]");
}
