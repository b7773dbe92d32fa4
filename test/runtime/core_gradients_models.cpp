#include "gradients.h"

// Gradients of models whose parameters are not all used, of several models, over
// several micro-steps; buffers, initial values, and mistakes.

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::GradientState;
using namespace accel::test;

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    left = register_parameter("left", torch::ones({2}, torch::kDouble));
    right = register_parameter("right", torch::ones({2}, torch::kDouble));
    never = register_parameter("never", torch::ones({2}, torch::kDouble));
    frozen = register_parameter(
        "frozen", torch::ones({2}, torch::kDouble), /*requires_grad=*/false);
  }
  torch::Tensor left, right, never, frozen;
};
TORCH_MODULE(Branches);

ACCEL_RANK_FUNCTION(branches) {
  Accelerator accelerator; // plain means over the processes
  Branches net;
  accelerator.prepare(net);
  const auto rank = accelerator.process_index();
  const auto world = static_cast<double>(accelerator.num_processes());
  const auto constant = [](double value) {
    return torch::full({2}, value, torch::kDouble);
  };
  // Every process uses left, process 0 alone right.
  auto loss = (net->left * static_cast<double>(rank + 1)).sum();
  if (rank == 0) {
    loss = loss + (net->right * 6).sum();
  }
  accelerator.backward(loss);
  expect_same(net->left.grad(), constant((world + 1) / 2), "left");
  expect_same(net->right.grad(), constant(6 / world), "right");
  EXPECT_FALSE(net->never.grad().defined());
  EXPECT_FALSE(net->frozen.grad().defined());

  // Unfrozen and frozen on the way; what is not reached keeps its gradient.
  net->zero_grad();
  net->frozen.set_requires_grad(true);
  net->left.set_requires_grad(false);
  net->never.mutable_grad() = constant(1.0 / 3);
  accelerator.backward((net->frozen * static_cast<double>(rank)).sum());
  expect_same(net->frozen.grad(), constant((world - 1) / 2), "unfrozen");
  EXPECT_FALSE(net->left.grad().defined());
  EXPECT_FALSE(net->right.grad().defined());
  EXPECT_TRUE(torch::equal(net->never.grad(), constant(1.0 / 3)));

  net->left.set_requires_grad(true);
  accelerator.backward((net->left * static_cast<double>(rank)).sum());
  expect_same(net->left.grad(), constant((world - 1) / 2), "left again");
  expect_same(net->frozen.grad(), constant((world - 1) / 2), "retained");
}

TEST(Gradients, UnusedFrozenAndUnfrozenParameters) {
  run_all("branches");
}

ACCEL_RANK_FUNCTION(two_models) {
  Accelerator accelerator(kMatch);
  torch::manual_seed(2);
  const auto make = [](int64_t from, int64_t to) {
    torch::nn::Linear layer(from, to);
    layer->to(torch::kDouble);
    return layer;
  };
  auto generator = make(3, 4);
  auto critic = make(4, 1);
  torch::manual_seed(2);
  auto plain_generator = make(3, 4);
  auto plain_critic = make(4, 1);
  SGD g_optimizer(generator->parameters(), kSgd);
  SGD d_optimizer(critic->parameters(), kSgd);
  torch::optim::SGD plain_g(plain_generator->parameters(), kSgd);
  torch::optim::SGD plain_d(plain_critic->parameters(), kSgd);
  // Any order, also twice, also through pointers.
  accelerator.prepare(d_optimizer, generator, &g_optimizer, critic);
  accelerator.prepare(critic.ptr(), *generator);
  const auto train = [](auto& g,
                        auto& d,
                        auto& g_step,
                        auto& d_step,
                        const torch::Tensor& noise,
                        bool freeze,
                        const auto& backward) {
    auto fake = g->forward(noise);
    d_step.zero_grad();
    backward(torch::relu(d->forward(fake.detach()) + 1).mean());
    d_step.step();
    // The generator's loss leaves gradients in a critic that is not frozen.
    g_step.zero_grad();
    for (auto& parameter : d->parameters()) {
      parameter.set_requires_grad(!freeze);
    }
    backward(-d->forward(fake).mean());
    for (auto& parameter : d->parameters()) {
      parameter.set_requires_grad(true);
    }
    g_step.step();
  };
  for (int64_t i = 0; i < 6; ++i) {
    const auto noise = rows(4 + i, 3, 0.5 + i);
    {
      auto step = accelerator.accumulate(generator, critic);
      train(
          generator,
          critic,
          g_optimizer,
          d_optimizer,
          accelerator.distribute(noise),
          /*freeze=*/i % 2 == 1,
          [&](const torch::Tensor& loss) { accelerator.backward(loss); });
    }
    train(
        plain_generator,
        plain_critic,
        plain_g,
        plain_d,
        noise,
        /*freeze=*/i % 2 == 1,
        [](const torch::Tensor& loss) { loss.backward(); });
    const auto what = "iteration " + std::to_string(i);
    expect_same_parameters(*generator, *plain_generator, what);
    expect_same_parameters(*critic, *plain_critic, what);
  }
}

TEST(Gradients, TwoModelsTrainedInTurn) {
  run_all("two_models");
}

ACCEL_RANK_FUNCTION(accumulates) {
  // Ten micro-batches in windows of three: the last window has one.
  constexpr int64_t kMicroBatches = 10;
  constexpr int64_t kWindow = 3;
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(kWindow));
  // An optimizer that nobody prepared takes part, too: one that an object of the
  // program's keeps, and that has no name.
  for (const auto& way :
       {std::pair{true, true}, {false, true}, {true, false}}) {
    const bool clear_first = way.first;
    const bool prepared = way.second;
    auto net = make_net();
    auto reference = make_net();
    std::vector<SGD> kept;
    kept.emplace_back(net->parameters(), kSgd);
    kept.emplace_back(std::vector{torch::zeros({1})}, kSgd); // Moves the first.
    auto& optimizer = kept.front();
    torch::optim::SGD plain(reference->parameters(), kSgd);
    accelerator.prepare(net);
    if (prepared) {
      accelerator.prepare(optimizer);
    }
    torch::optim::Optimizer& base = optimizer;
    in_windows(kMicroBatches, kWindow, [&](const MicroBatch& micro) {
      const auto i = micro.number;
      const auto batch = rows(6 + i % 2, 3, 1.0 + i);
      if (i % 4 != 0) {
        // Bodies in which nothing is learnt count for nothing.
        in_windows(3, kWindow, [&](const MicroBatch&) {
          auto step = accelerator.accumulate(net);
          torch::NoGradGuard no_grad;
          net->forward(accelerator.distribute(batch));
        });
      }
      {
        auto step = accelerator.accumulate(net);
        EXPECT_EQ(accelerator.sync_gradients(), micro.last);
        if (clear_first) {
          base.zero_grad();
        }
        accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
        if (!micro.last) {
          EXPECT_GT(accelerator.clip_grad_norm_(net->parameters(), 1e-3), 1e-3);
        }
        optimizer.step();
        if (!clear_first) {
          base.zero_grad(/*set_to_none=*/false);
        }
      }
      if (i % kWindow == 0) {
        plain.zero_grad();
      }
      (mean_loss(reference, batch) / micro.length).backward();
      if (micro.last) {
        plain.step();
      }
      expect_same_parameters(
          *net, *reference, "micro-step " + std::to_string(i));
    });
  }
}

TEST(Gradients, AccumulationSurvivesZeroGrad) {
  run_all("accumulates");
}

// Two optimizers in one body, each process with batches of its own: what the first
// backward of the last micro-step does not reach must outlive the zero_grad in front of
// the second one.
ACCEL_RANK_FUNCTION(accumulates_for_two_optimizers) {
  constexpr int64_t kWindow = 2;
  for (const bool to_none : {true, false}) {
    Accelerator accelerator(
        AcceleratorOptions().gradient_accumulation_steps(kWindow));
    const auto rank = static_cast<double>(accelerator.process_index());
    const auto world = static_cast<double>(accelerator.num_processes());
    Branches net;
    SGD left({net->left}, 0.1);
    SGD right({net->right}, 0.1);
    accelerator.prepare(net, left, right);
    double expected_left = 1;
    double expected_right = 1;
    for (int i = 0; i < 4; ++i) {
      auto step = accelerator.accumulate(net);
      left.zero_grad(to_none);
      accelerator.backward((net->left * (rank + i)).sum());
      left.step();
      right.zero_grad(to_none);
      accelerator.backward((net->right * (rank + 3 * i)).sum());
      right.step();
      if (i % 2 == 1) { // The means of i and i - 1, and of the ranks.
        expected_left -= 0.1 * (i - 0.5 + (world - 1) / 2);
        expected_right -= 0.1 * (3 * (i - 0.5) + (world - 1) / 2);
      }
      EXPECT_NEAR(net->left[0].item<double>(), expected_left, 1e-12) << i;
      EXPECT_NEAR(net->right[0].item<double>(), expected_right, 1e-12) << i;
    }
    accelerator.end_training();
  }
}

TEST(Gradients, OfTwoOptimizersSurviveZeroGrad) {
  run_all("accumulates_for_two_optimizers");
}

namespace {

torch::nn::Linear* adjoint_layer = nullptr;

/// Adds the gradients of a layer that is in no graph by itself, as adjoint methods and
/// reversible networks do; `make`: where there is none yet.
struct Adjoint : torch::autograd::Function<Adjoint> {
  static torch::Tensor forward(
      torch::autograd::AutogradContext* context, const torch::Tensor& x, bool make) {
    const torch::NoGradGuard no_grad;
    context->save_for_backward({x});
    context->saved_data["make"] = make;
    return torch::tanh((*adjoint_layer)->forward(x));
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode grad(true);
    auto& layer = *adjoint_layer;
    const auto x = context->get_saved_variables()[0].detach().requires_grad_(true);
    const auto all = torch::autograd::grad(
        {torch::tanh(layer->forward(x))}, {x, layer->weight, layer->bias}, {gradients[0]});
    size_t i = 1;
    const torch::NoGradGuard no_grad;
    for (auto& parameter : layer->parameters()) {
      if (context->saved_data["make"].toBool() && !parameter.grad().defined()) {
        parameter.mutable_grad() = torch::zeros_like(parameter);
      }
      parameter.mutable_grad().add_(all[i++]);
    }
    return {all[0], torch::Tensor()};
  }
};

} // namespace

ACCEL_RANK_FUNCTION(adjoints) {
  Accelerator accelerator(kMatch);
  for (const bool make : {true, false}) {
    torch::nn::Linear layers[2] = {torch::nn::Linear(3, 3), torch::nn::Linear(3, 3)};
    for (auto& layer : layers) {
      layer->to(torch::kDouble);
      const torch::NoGradGuard no_grad;
      layer->weight.copy_(torch::arange(9, torch::kDouble).view({3, 3}) * 0.1);
      layer->bias.fill_(0.5);
      for (auto& parameter : layer->parameters()) {
        if (!make) {
          parameter.mutable_grad() = torch::zeros_like(parameter);
        }
      }
    }
    SGD optimizer(layers[0]->parameters(), kSgd);
    torch::optim::SGD plain(layers[1]->parameters(), kSgd);
    accelerator.prepare(layers[0], optimizer);
    for (int i = 0; i < 4; ++i) {
      optimizer.zero_grad(/*set_to_none=*/make);
      plain.zero_grad(/*set_to_none=*/make);
      // The second time on top of the first.
      for (int time = 0; time < 1 + i % 2; ++time) {
        const auto batch = rows(6 + i);
        adjoint_layer = &layers[0];
        const auto x = accelerator.distribute(batch).requires_grad_(true);
        accelerator.backward(Adjoint::apply(x, make).pow(2).mean());
        adjoint_layer = &layers[1];
        Adjoint::apply(batch.clone().requires_grad_(true), make).pow(2).mean().backward();
      }
      optimizer.step();
      plain.step();
      const auto what = "step " + std::to_string(i);
      expect_same(layers[0]->weight, layers[1]->weight, what);
      expect_same(layers[0]->bias, layers[1]->bias, what);
    }
  }
}

TEST(Gradients, ThatABackwardAddsByItself) {
  run_all("adjoints");
}

// A weight penalty's gradient, which all processes have, becomes a part of the sum that
// the loss's gradient is: one sum over the processes for all parameters, at the end.
ACCEL_RANK_FUNCTION(penalties) {
  Accelerator accelerator(kMatch);
  for (const bool after : {false, true}) {
    auto net = make_net();
    auto reference = make_net();
    accelerator.prepare(net);
    const auto batch = rows(6);
    const auto loss_of = [&](torch::nn::Sequential& model, const torch::Tensor& x) {
      // Backward goes from the last operator to the first.
      const auto first = after ? mean_loss(model, x) : torch::Tensor();
      auto penalty = torch::zeros({}, torch::kDouble);
      for (const auto& parameter : model->parameters()) {
        penalty = penalty + parameter.pow(2).sum();
      }
      return (after ? first : mean_loss(model, x)) + 0.1 * penalty;
    };
    const auto loss = loss_of(net, accelerator.distribute(batch));
    loss.backward();
    const auto expected = loss_of(reference, batch);
    expected.backward();
    for (const auto& parameter : net->parameters()) {
      const auto& gradient = parameter.grad();
      EXPECT_EQ(
          accel::distributed::is_distributed(gradient),
          accelerator.num_processes() > 1);
      if (accel::distributed::is_distributed(gradient)) {
        EXPECT_TRUE(accel::distributed::placements(gradient)[0].is_partial());
      }
    }
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      expect_same(
          accel::distributed::full_tensor(net->parameters()[i].grad()),
          reference->parameters()[i].grad(),
          "parameter " + std::to_string(i));
    }
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-14);
    net->zero_grad();
  }
}

TEST(Gradients, OfPenaltiesAreBroughtTogetherWithTheOthers) {
  run_all("penalties");
}

ACCEL_RANK_FUNCTION(accelerates_way) {
  // Loss divided by the number of steps, also in a short window; plain means.
  Accelerator accelerator(
      AcceleratorOptions().gradient_accumulation_steps(4));
  auto weight = torch::zeros({1}, torch::kDouble).set_requires_grad(true);
  SGD optimizer(std::vector<torch::Tensor>{weight}, torch::optim::SGDOptions(1));
  accelerator.prepare(optimizer);
  auto loader = std::make_shared<accel::DataLoaderState>();
  GradientState::get().enter(loader);
  std::vector<double> at_sync;
  for (int i = 0; i < 10; ++i) {
    loader->end_of_dataloader = i == 9;
    auto step = accelerator.accumulate();
    accelerator.backward(
        weight.sum() * static_cast<double>(2 * accelerator.process_index()));
    if (accelerator.sync_gradients()) {
      at_sync.push_back(weight.grad().item<double>());
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  const auto mean = static_cast<double>(accelerator.num_processes() - 1);
  EXPECT_EQ(at_sync, (std::vector<double>{mean, mean, mean / 2}));
}

ACCEL_RANK_FUNCTION(windows_of_another_length) {
  for (const bool match : {false, true}) {
    Accelerator accelerator(
        AcceleratorOptions().match_single_device(match).gradient_accumulation_steps(2));
    EXPECT_EQ(accelerator.gradient_accumulation_steps(), 2);
    auto net = make_net();
    SGD optimizer(net->parameters(), kSgd);
    accelerator.prepare(net, optimizer);
    std::string stepped;
    const auto train = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        const auto before = net->parameters()[0].detach().clone();
        auto step = accelerator.accumulate(net);
        optimizer.zero_grad();
        accelerator.backward(mean_loss(net, rows(4)));
        optimizer.step();
        stepped += torch::equal(before, net->parameters()[0]) ? '-' : 'x';
      }
    };
    train(2);
    accelerator.set_gradient_accumulation_steps(3);
    train(4);
    const auto error = error_of([&] { accelerator.set_gradient_accumulation_steps(1); });
    EXPECT_TRUE(contains(error, "in the middle of a window, of which 3")) << error;
    train(2);
    accelerator.set_gradient_accumulation_steps(1);
    train(2);
    EXPECT_EQ(stepped, "-x--x--xxx") << match;
    EXPECT_THROW(accelerator.set_gradient_accumulation_steps(0), c10::Error);
    accelerator.end_training();
  }
}

TEST(Gradients, WindowsOfAnotherLength) {
  run_all("windows_of_another_length");
}

TEST(Gradients, AcceleratesWay) {
  run_all("accelerates_way");
}

ACCEL_RANK_FUNCTION(buffers) {
  // Without match_single_device each process has batch statistics of its own;
  // the running ones are process 0's.
  Accelerator accelerator;
  torch::nn::BatchNorm1d norm(2);
  accelerator.prepare(norm);
  const auto rank = static_cast<double>(accelerator.process_index());
  auto step = accelerator.accumulate(norm);
  accelerator.backward(
      norm->forward(torch::full({4, 2}, rank + 1, torch::kFloat)).sum());
  expect_same(norm->running_mean, torch::full({2}, 0.1F), "running mean");
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(Gradients, BuffersAreProcessZeros) {
  run_all("buffers");
}

ACCEL_RANK_FUNCTION(initial_values) {
  Accelerator accelerator;
  torch::manual_seed(100 + accelerator.process_index());
  torch::nn::Sequential net(
      torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  net->to(torch::kDouble);
  auto loose = torch::randn({5}).set_requires_grad(true);
  SGD optimizer(std::vector<torch::Tensor>{loose}, kSgd);
  accelerator.prepare(optimizer, net);
  torch::manual_seed(100);
  torch::nn::Sequential first(
      torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  first->to(torch::kDouble);
  expect_same_parameters(*net, *first, "initial");
  EXPECT_TRUE(torch::equal(loose, torch::randn({5})));
}

TEST(Gradients, InitialValuesAreProcessZeros) {
  run_all("initial_values");
}

void train_by_closures(Accelerator& accelerator) {
  auto net = make_net();
  auto reference = make_net();
  const auto options = torch::optim::LBFGSOptions(0.5).max_iter(4);
  accel::AcceleratedOptimizer<torch::optim::LBFGS> optimizer(
      net->parameters(), options);
  torch::optim::LBFGS plain(reference->parameters(), options);
  accelerator.prepare(net, optimizer);
  for (int64_t i = 0; i < 3; ++i) {
    const auto batch = rows(5, 3, 1.0 + i);
    auto step = accelerator.accumulate(net);
    const auto part = accelerator.distribute(batch);
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = mean_loss(net, part);
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(net->parameters(), 2);
      return loss;
    });
    plain.step([&] {
      plain.zero_grad();
      auto loss = mean_loss(reference, batch);
      loss.backward();
      torch::nn::utils::clip_grad_norm_(reference->parameters(), 2);
      return loss;
    });
    const auto actual = net->named_parameters();
    for (const auto& item : reference->named_parameters()) {
      EXPECT_TRUE(
          torch::allclose(actual[item.key()], item.value(), 1e-9, 1e-11));
    }
  }
}

ACCEL_RANK_FUNCTION(lbfgs) {
  Accelerator accelerator(kMatch);
  train_by_closures(accelerator);
}

// Gradients of a closure are those of its batch: each call updates, and says so.
ACCEL_RANK_FUNCTION(lbfgs_in_a_window) {
  Accelerator accelerator(
      AcceleratorOptions(kMatch).gradient_accumulation_steps(2));
  train_by_closures(accelerator);
}

TEST(Gradients, ClosuresOfLbfgs) {
  run_all("lbfgs");
}

TEST(Gradients, ClosuresAccumulateNothing) {
  for (const int world : {1, 2, 3}) {
    const auto results = accel::test::run("lbfgs_in_a_window", world);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_TRUE(results[rank].success()) << results[rank].output;
      EXPECT_EQ(contains(results[rank].error, "accumulates nothing"), rank == 0);
    }
  }
}

// Accelerate's windows are those of the whole step, which a closure is no part of: it
// is refused before it has changed anything, whether or not gradients are synchronised.
ACCEL_RANK_FUNCTION(closure_in_a_window_of_all) {
  Accelerator accelerator(AcceleratorOptions().gradient_accumulation_steps(2));
  auto net = make_net();
  auto before = make_net();
  SGD optimizer(net->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  for (const bool synchronises : {false, true}) {
    auto step = accelerator.accumulate(net);
    EXPECT_EQ(accelerator.sync_gradients(), synchronises);
    bool is_called = false;
    EXPECT_TRUE(contains(
        error_of([&] {
          optimizer.step([&] {
            is_called = true;
            return mean_loss(net, rows(4));
          });
        }),
        "cannot be combined with gradient accumulation"));
    EXPECT_FALSE(is_called);
    expect_same_parameters(*net, *before, "nothing has changed");
  }
}

TEST(Gradients, ClosuresInWindowsOfAllOptimizersAreRefused) {
  run_all("closure_in_a_window_of_all");
}

// Accelerate's way: each process has a batch, and the optimizer sees the mean of
// their losses, by which LBFGS decides how far it goes.
ACCEL_RANK_FUNCTION(lbfgs_with_a_batch_each) {
  Accelerator accelerator;
  const auto world = accelerator.num_processes();
  const auto rank = accelerator.process_index();
  auto net = make_net();
  auto reference = make_net();
  const auto options = torch::optim::LBFGSOptions(0.5).max_iter(4);
  accel::AcceleratedOptimizer<torch::optim::LBFGS> optimizer(
      net->parameters(), options);
  torch::optim::LBFGS plain(reference->parameters(), options);
  accelerator.prepare(net, optimizer);
  for (int64_t i = 0; i < 3; ++i) {
    const auto all = rows(4 * world, 3, 1.0 + i);
    const auto own = all.slice(0, 4 * rank, 4 * rank + 4);
    auto step = accelerator.accumulate(net);
    const auto seen = optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = mean_loss(net, own);
      accelerator.backward(loss);
      return loss;
    });
    const auto expected = plain.step([&] {
      plain.zero_grad();
      auto loss = mean_loss(reference, all);
      loss.backward();
      return loss;
    });
    expect_same(seen.detach(), expected.detach(), "the loss");
    const auto actual = net->named_parameters();
    for (const auto& item : reference->named_parameters()) {
      EXPECT_TRUE(
          torch::allclose(actual[item.key()], item.value(), 1e-9, 1e-11));
    }
  }
}

TEST(Gradients, ClosuresOfLbfgsWithABatchForEachProcess) {
  run_all("lbfgs_with_a_batch_each");
}

// A gradient that is a distributed tensor knows what it is a part of: nobody has to
// have prepared the parameter.
ACCEL_RANK_FUNCTION(unprepared) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  SGD optimizer(net->parameters(), kSgd);
  torch::optim::SGD plain(reference->parameters(), kSgd);
  for (int64_t i = 0; i < 3; ++i) {
    const auto all = rows(7, 3, 1.0 + i);
    auto step = accelerator.accumulate();
    optimizer.zero_grad();
    plain.zero_grad();
    // The second gradient is no distributed tensor: every process has all of it.
    const auto decay = [](const auto& model) {
      return model->parameters().front().square().sum();
    };
    accelerator.backward(
        mean_loss(net, accelerator.distribute(all)) + decay(net));
    (mean_loss(reference, all) + decay(reference)).backward();
    optimizer.step();
    plain.step();
    optimizer.zero_grad();
    plain.zero_grad();
    accelerator.backward(decay(net));
    decay(reference).backward();
    optimizer.step();
    plain.step();
    expect_same_parameters(*net, *reference, "step " + std::to_string(i));
  }
}

TEST(Gradients, DistributedOnesOfWhatNobodyPrepared) {
  run_all("unprepared");
}

// Where each process has a batch of its own, somebody has to.
ACCEL_RANK_FUNCTION(unprepared_with_a_batch_each) {
  Accelerator accelerator;
  auto net = make_net();
  SGD optimizer(net->parameters(), kSgd);
  mean_loss(net, rows(4)).backward();
  if (accelerator.use_distributed()) {
    EXPECT_TRUE(contains(
        error_of([&] { optimizer.step(); }), "has not been prepared"));
    EXPECT_TRUE(contains(
        error_of([&] { accelerator.clip_grad_norm_(net->parameters(), 1); }),
        "clip_grad_norm_ was given a parameter of sizes"));
    EXPECT_TRUE(contains(
        error_of([&] { accelerator.clip_grad_value_(net->parameters(), 1); }),
        "clip_grad_value_ was given a parameter of sizes"));
  } else {
    optimizer.step();
  }
}

TEST(Gradients, ThatNobodyAverages) {
  run_all("unprepared_with_a_batch_each");
}

/// A backward that went past the Accelerator, where each process has a batch of its own.
ACCEL_RANK_FUNCTION(unseen_backward) {
  Accelerator accelerator;
  auto net = make_net();
  SGD optimizer(net->parameters(), kSgd);
  const auto batch = rows(4);
  accelerator.prepare(net, optimizer);
  // Before the first one that it has seen, and behind one.
  for (int i = 0; i < 2; ++i) {
    mean_loss(net, batch).backward();
    if (accelerator.use_distributed()) {
      const auto error = error_of([&] { optimizer.step(); });
      EXPECT_TRUE(contains(error, "accelerator.backward(loss) instead")) << error;
    }
    // Once its result is cleared, nothing is wrong.
    net->zero_grad();
    accelerator.backward(mean_loss(net, batch));
    optimizer.step();
  }
}

// Who brings gradients together by hand knows what he does.
ACCEL_RANK_FUNCTION(reduced_by_hand) {
  Accelerator accelerator;
  auto net = make_net();
  SGD optimizer(net->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  mean_loss(net, rows(4 + accelerator.process_index())).backward();
  for (auto& parameter : net->parameters()) {
    parameter.mutable_grad() = accelerator.reduce(parameter.grad(), "mean");
  }
  optimizer.step();
  for (auto& parameter : net->parameters()) {
    expect_same(
        accelerator.broadcast(parameter.detach()), parameter.detach(), "parameter");
  }
}

TEST(Gradients, ThatTheProgramReducesItself) {
  run_all("reduced_by_hand");
}

TEST(Gradients, ThatNobodySees) {
  run_all("unseen_backward");
}

ACCEL_RANK_FUNCTION(mistakes) {
  Accelerator accelerator(kMatch);
  const bool several = accelerator.use_distributed();
  auto net = make_net();
  SGD optimizer(net->parameters(), kSgd);
  const auto batch = rows(4);
  accelerator.prepare(net, optimizer);
  if (several) {
    const auto error = error_of([&] {
      accelerator.backward(
          mean_loss(net, batch), accel::BackwardOptions().create_graph(true));
    });
    EXPECT_TRUE(contains(error, "create_graph")) << error;
  }
  torch::nn::Linear empty = nullptr;
  EXPECT_TRUE(contains(
      error_of([&] { accelerator.prepare(empty); }), "empty module holder"));
}

TEST(Gradients, MistakesAreErrors) {
  run_all("mistakes");
}

ACCEL_RANK_FUNCTION(different_models) {
  Accelerator accelerator;
  torch::nn::Linear net(3, accelerator.process_index() == 1 ? 4 : 2);
  accelerator.prepare(net);
}

TEST(Gradients, DifferentModelsAreRefused) {
  for (const auto& result : accel::test::run("different_models", 2)) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(contains(result.error, "prepare was given other tensors"))
        << result.error;
  }
}

ACCEL_RANK_FUNCTION(hooks_and_dtypes) {
  auto net = make_net();
  const auto parameter = net->parameters()[0];
  {
    Accelerator accelerator(kMatch);
    accelerator.prepare(net);
    const auto batch = rows(6);
    accelerator.backward(mean_loss(net, batch));
    // The buckets follow what the program does to the model.
    net->zero_grad();
    net->to(torch::kFloat);
    accelerator.backward(
        net->forward(batch.to(torch::kFloat)).pow(2).sum(1).mean());
    EXPECT_EQ(parameter.grad().scalar_type(), torch::kFloat);
    net->to(torch::kDouble);
    net->zero_grad();
    // A second model, after the first has been used; then it goes away.
    {
      auto other = make_net();
      accelerator.prepare(other);
      accelerator.backward(mean_loss(other, batch));
    }
    auto third = make_net();
    accelerator.prepare(third);
    auto reference = make_net();
    accelerator.backward(mean_loss(third, batch));
    mean_loss(reference, batch).backward();
    expect_same_gradients(*third, *reference, "third");
  }
  EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(parameter), nullptr);
}

TEST(Gradients, ModelsChangeComeAndGo) {
  run_all("hooks_and_dtypes");
}

/// A layer of complex weights, and a real one behind it.
struct EqualizerImpl : torch::nn::Module {
  EqualizerImpl() {
    const auto range = torch::arange(12, torch::kDouble);
    weight = register_parameter(
        "weight", torch::complex(range.sin(), range.cos()).view({4, 3}));
    scale = register_parameter("scale", torch::ones({3}, torch::kDouble));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::view_as_real(torch::view_as_complex(x).mm(weight)).tanh() *
        scale.unsqueeze(1);
  }
  torch::Tensor weight, scale;
};
TORCH_MODULE(Equalizer);

ACCEL_RANK_FUNCTION(complex_parameters) {
  const auto data = torch::sin(torch::arange(7 * 4 * 2, torch::kDouble)).view({7, 4, 2});
  const auto train = [&](Equalizer& net, auto&& batch, auto&& backward, auto&& optimizer) {
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      backward(net->forward(batch).square().mean());
      optimizer.step();
    }
  };
  Equalizer plain;
  torch::optim::Adam theirs(plain->parameters(), 0.01);
  train(plain, data, [](const torch::Tensor& loss) { loss.backward(); }, theirs);
  for (const bool match : {true, false}) {
    Accelerator accelerator(AcceleratorOptions().cpu(true).match_single_device(match));
    Equalizer net;
    accel::AcceleratedOptimizer<torch::optim::Adam> ours(net->parameters(), 0.01);
    accelerator.prepare(net, ours);
    // Each process has all of it where processes have batches of their own.
    train(
        net, match ? accelerator.distribute(data) : data,
        [&](const torch::Tensor& loss) { accelerator.backward(loss); }, ours);
    EXPECT_TRUE(accelerator.full(net->weight).allclose(plain->weight, 1e-12, 1e-12));
    EXPECT_TRUE(accelerator.full(net->scale).allclose(plain->scale, 1e-12, 1e-12));
  }
}

TEST(Gradients, ComplexParameters) {
  run_all("complex_parameters");
}
