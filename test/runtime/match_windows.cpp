// Accumulation with several optimizers, loops in each other, and steps that are not
// made in every body: K steps of an optimizer are one, with the mean of what each
// would have seen on one device.

#include "gradients.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;

namespace {

constexpr int64_t kWindow = 3;

/// LibTorch's SGD, whose steps are windows; the meaning of accumulation in its own words.
class PlainWindows {
 public:
  explicit PlainWindows(std::vector<torch::Tensor> parameters)
      : parameters_(std::move(parameters)), sgd_(parameters_, kSgd) {}

  void zero_grad() {
    sgd_.zero_grad();
  }

  void step(double clip = 0) {
    sums_.resize(parameters_.size());
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto& gradient = parameters_[i].grad();
      if (gradient.defined()) {
        sums_[i] = sums_[i].defined() ? sums_[i] + gradient : gradient.clone();
      }
    }
    if (++steps_ < kWindow) {
      return;
    }
    steps_ = 0;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (sums_[i].defined()) {
        parameters_[i].mutable_grad() = sums_[i] / static_cast<double>(kWindow);
      }
    }
    sums_.clear();
    if (clip > 0) {
      torch::nn::utils::clip_grad_norm_(parameters_, clip);
    }
    sgd_.step();
  }

 private:
  std::vector<torch::Tensor> parameters_;
  torch::optim::SGD sgd_;
  std::vector<torch::Tensor> sums_;
  int64_t steps_ = 0;
};

/// Two models, their optimizers, and the same with LibTorch alone.
struct Pair {
  torch::nn::Sequential generator = make_net(), critic = make_net();
  torch::nn::Sequential plain_generator = make_net(), plain_critic = make_net();
  SGD g_optimizer{generator->parameters(), kSgd};
  SGD d_optimizer{critic->parameters(), kSgd};
  PlainWindows plain_g{plain_generator->parameters()};
  PlainWindows plain_d{plain_critic->parameters()};

  void expect_same(const std::string& what) const {
    expect_same_parameters(*generator, *plain_generator, what + ": generator");
    expect_same_parameters(*critic, *plain_critic, what + ": critic");
  }
};

/// One step of a model and of its reference on the same batch.
void step_both(
    Accelerator& accelerator,
    torch::nn::Sequential& model,
    SGD& optimizer,
    torch::nn::Sequential& plain_model,
    PlainWindows& plain,
    const torch::Tensor& batch) {
  optimizer.zero_grad();
  accelerator.backward(mean_loss(model, accelerator.distribute(batch)));
  optimizer.step();
  plain.zero_grad();
  mean_loss(plain_model, batch).backward();
  plain.step();
}

torch::Tensor scores(torch::nn::Sequential& critic, const torch::Tensor& made) {
  return critic->forward(torch::cat({made, made.narrow(1, 0, 1)}, 1));
}

} // namespace

// The generator's loss leaves gradients in the critic, which zero_grad clears.
ACCEL_RANK_FUNCTION(windows_in_one_body) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  Pair pair;
  accelerator.prepare(
      pair.generator, pair.critic, pair.g_optimizer, pair.d_optimizer);
  const auto train = [](auto& generator, auto& critic, auto& g, auto& d,
                        const torch::Tensor& noise, const auto& backward) {
    const auto made = generator->forward(noise);
    d.zero_grad();
    backward(torch::relu(scores(critic, made.detach()) + 1).mean());
    d.step();
    g.zero_grad();
    backward(-scores(critic, made).mean());
    g.step();
  };
  for (int64_t i = 0; i < 7; ++i) {
    const auto noise = rows(4 + i, 3, 0.5 + static_cast<double>(i));
    {
      auto step = accelerator.accumulate(pair.generator, pair.critic);
      train(pair.generator, pair.critic, pair.g_optimizer, pair.d_optimizer,
            accelerator.distribute(noise),
            [&](const torch::Tensor& loss) { accelerator.backward(loss); });
    }
    train(pair.plain_generator, pair.plain_critic, pair.plain_g, pair.plain_d,
          noise, [](const torch::Tensor& loss) { loss.backward(); });
    pair.expect_same("body " + std::to_string(i));
  }
}

TEST(AccumulationWindows, OfTwoOptimizersInOneBody) {
  run_all("windows_in_one_body");
}

// A critic's loop in the generator's: five and one steps in each round.
ACCEL_RANK_FUNCTION(windows_of_loops_in_each_other) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  Pair pair;
  accelerator.prepare(
      pair.generator, pair.critic, pair.g_optimizer, pair.d_optimizer);
  double seed = 0.3;
  for (int round = 0; round < 7; ++round) {
    auto outer = accelerator.accumulate(pair.generator);
    for (int i = 0; i < 5; ++i) {
      auto inner = accelerator.accumulate(pair.critic);
      const auto batch = rows(6, 3, seed += 0.1);
      pair.d_optimizer.zero_grad();
      accelerator.backward(mean_loss(pair.critic, accelerator.distribute(batch)));
      // Only where it steps.
      const double norm =
          accelerator.clip_grad_norm_(pair.critic->parameters(), 1e-2);
      EXPECT_GT(norm, 0);
      pair.d_optimizer.step();
      pair.plain_d.zero_grad();
      mean_loss(pair.plain_critic, batch).backward();
      pair.plain_d.step(/*clip=*/1e-2);
    }
    step_both(accelerator, pair.generator, pair.g_optimizer,
              pair.plain_generator, pair.plain_g, rows(6, 3, seed += 0.1));
    pair.expect_same("round " + std::to_string(round));
  }
}

TEST(AccumulationWindows, OfLoopsInEachOther) {
  run_all("windows_of_loops_in_each_other");
}

// As reinforcement learning does it: not in every body, and more than once in some.
ACCEL_RANK_FUNCTION(windows_of_bodies_without_steps) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  Pair pair;
  accelerator.prepare(pair.generator, pair.g_optimizer);
  double seed = 0.3;
  for (int body = 0; body < 12; ++body) {
    auto step = accelerator.accumulate(pair.generator);
    for (int i = 0; body % 4 == 0 && i < 4; ++i) {
      step_both(accelerator, pair.generator, pair.g_optimizer,
                pair.plain_generator, pair.plain_g, rows(6, 3, seed += 0.1));
    }
    pair.expect_same("body " + std::to_string(body));
  }
}

TEST(AccumulationWindows, OfBodiesWithoutSteps) {
  run_all("windows_of_bodies_without_steps");
}

// A program that leaves out the steps itself, where sync_gradients says so.
ACCEL_RANK_FUNCTION(windows_that_the_program_asks_for) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  for (const bool clears_each_time : {true, false}) {
    Pair pair;
    accelerator.prepare(pair.generator, pair.g_optimizer);
    for (int i = 0; i < 7; ++i) {
      const auto batch = rows(6, 3, 0.3 + i);
      auto step = accelerator.accumulate(pair.generator);
      if (clears_each_time) {
        pair.g_optimizer.zero_grad();
      }
      accelerator.backward(mean_loss(pair.generator, accelerator.distribute(batch)));
      EXPECT_EQ(accelerator.sync_gradients(), i % kWindow == kWindow - 1);
      if (accelerator.sync_gradients()) {
        pair.g_optimizer.step();
        if (!clears_each_time) {
          pair.g_optimizer.zero_grad();
        }
      }
      pair.plain_g.zero_grad();
      mean_loss(pair.plain_generator, batch).backward();
      pair.plain_g.step();
      pair.expect_same("body " + std::to_string(i));
    }
    accelerator.clear();
    accel::GradientState::get().step = 0;
  }
}

TEST(AccumulationWindows, ThatTheProgramAsksFor) {
  run_all("windows_that_the_program_asks_for");
}

namespace {
// Updates by hand are made every time, and one process says so; also where something
// else is accumulated.
void update_by_hand(bool beside_an_optimizer) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  auto net = make_net();
  auto plain = make_net();
  auto other = make_net();
  std::optional<accel::AcceleratedOptimizer<torch::optim::SGD>> optimizer;
  accelerator.prepare(net);
  if (beside_an_optimizer) {
    optimizer.emplace(other->parameters(), kSgd);
    accelerator.prepare(other, *optimizer);
  }
  for (int i = 0; i < 3; ++i) {
    const auto batch = rows(6, 3, 0.3 + i);
    auto step = accelerator.accumulate(net);
    accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
    mean_loss(plain, batch).backward();
    const torch::NoGradGuard no_grad;
    for (auto& model : {net, plain}) {
      for (auto& parameter : model->parameters()) {
        parameter.sub_(parameter.grad(), 0.1);
        parameter.grad().zero_();
      }
    }
    expect_same_parameters(*net, *plain, "update " + std::to_string(i));
  }
}
} // namespace

ACCEL_RANK_FUNCTION(windows_without_an_optimizer) {
  update_by_hand(/*beside_an_optimizer=*/false);
}

ACCEL_RANK_FUNCTION(windows_beside_an_optimizer) {
  update_by_hand(/*beside_an_optimizer=*/true);
}

ACCEL_RANK_FUNCTION(windows_with_a_plain_optimizer) {
  // LibTorch's SGD writes where no version is counted.
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), kSgd);
  accelerator.prepare(net);
  for (int i = 0; i < kWindow; ++i) {
    auto step = accelerator.accumulate(net);
    optimizer.zero_grad();
    accelerator.backward(mean_loss(net, accelerator.distribute(rows(6, 3, 0.3 + i))));
    optimizer.step();
  }
}

namespace {

/// All succeed, and the main process alone says `warning`; or nobody, where it is not
/// `expected`.
void expect_warning(
    const std::vector<accel::test::RankResult>& results,
    const std::string& warning,
    bool expected = true) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].success()) << results[rank].output;
    EXPECT_EQ(
        results[rank].error.find(warning) != std::string::npos,
        expected && rank == 0)
        << warning << ", rank " << rank << ": " << results[rank].error;
  }
}

} // namespace

TEST(AccumulationWindows, UpdatesByHandHaveNone) {
  for (const char* function :
       {"windows_without_an_optimizer", "windows_beside_an_optimizer",
        "windows_with_a_plain_optimizer"}) {
    for (const int world : {1, 2}) {
      SCOPED_TRACE(function);
      expect_warning(
          accel::test::run(function, world), "not every update is accumulated");
    }
  }
}

namespace {
void train_for(int steps) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  auto net = make_net();
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  for (int i = 0; i < steps; ++i) {
    auto step = accelerator.accumulate(net);
    optimizer.zero_grad();
    accelerator.backward(mean_loss(net, accelerator.distribute(rows(6, 3, 0.3 + i))));
    optimizer.step();
  }
}
} // namespace

ACCEL_RANK_FUNCTION(windows_that_nothing_opens) {
  const bool match = std::getenv("OWN_BATCHES") == nullptr;
  Accelerator accelerator(
      AcceleratorOptions().match_single_device(match).gradient_accumulation_steps(kWindow));
  auto net = make_net();
  accel::AcceleratedOptimizer<torch::optim::SGD> optimizer(net->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  if (match) {
    (void)accelerator.accumulate(net); // It ends at once.
  }
  accelerator.backward(mean_loss(net, rows(6)));
  optimizer.step();
}

TEST(AccumulationWindows, StepsOutsideOfAccumulateAreWarnedOf) {
  for (const bool own_batches : {false, true}) {
    accel::test::RunOptions options;
    if (own_batches) {
      options.environment["OWN_BATCHES"] = "1";
    }
    expect_warning(
        accel::test::run("windows_that_nothing_opens", 2, options),
        "an optimizer steps outside of accumulate");
  }
}

ACCEL_RANK_FUNCTION(windows_that_are_full) {
  train_for(2 * kWindow);
}
ACCEL_RANK_FUNCTION(windows_of_which_one_is_not) {
  train_for(kWindow + 1);
}

TEST(AccumulationWindows, GradientsThatNoUpdateHasUsedAreWarnedOf) {
  for (const char* name : {"windows_that_are_full", "windows_of_which_one_is_not"}) {
    const bool is_full = std::string(name) == "windows_that_are_full";
    SCOPED_TRACE(name);
    const auto results = accel::test::run(name, 2);
    expect_warning(
        results,
        "gradients that no update has used, those of its last 1 steps",
        !is_full);
    expect_warning(results, "not every update is accumulated", false);
  }
}
