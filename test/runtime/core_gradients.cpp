#include "gradients.h"

#include <accel/distributed/tensor.h>
#include <accel/utils/environment.h>

#include <cstdlib>
#include <string>

// Gradients of one model: batches of any size, cleared gradients, several
// backwards.

using accel::Accelerator;
using accel::AcceleratorOptions;
using namespace accel::test;

ACCEL_RANK_FUNCTION(parts_of_any_size) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  accelerator.prepare(net);
  // Down to batches with fewer rows than processes.
  for (const int64_t size : {12, 7, 5, 2, 1}) {
    const auto batch = rows(size);
    const auto what = std::to_string(size) + " rows";
    {
      auto step = accelerator.accumulate(net);
      accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
    }
    mean_loss(reference, batch).backward();
    expect_same_gradients(*net, *reference, what + ", mean");
    net->zero_grad();
    reference->zero_grad();
    {
      auto step = accelerator.accumulate(net);
      auto part = accelerator.distribute(batch);
      accelerator.backward(net->forward(part).pow(2).sum());
    }
    reference->forward(batch).pow(2).sum().backward();
    expect_same_gradients(*net, *reference, what + ", sum");
    net->zero_grad();
    reference->zero_grad();
  }
}

TEST(Gradients, PartsOfAnySize) {
  run_all("parts_of_any_size");
}

ACCEL_RANK_FUNCTION(one_sample) {
  expect_one_sample_counts_once(make_net(), make_net(), rows(1));
}

TEST(Gradients, OneSampleCountsOnce) {
  run_all("one_sample");
}

// A batch that is distributed in one step and whole in the next, and two losses
// of one step of which one is: sums of parts, and gradients that all have.
ACCEL_RANK_FUNCTION(whole_and_in_parts) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  accelerator.prepare(net);
  const auto batch = rows(7);
  for (int64_t i = 0; i < 6; ++i) {
    const auto what = "backward " + std::to_string(i);
    accelerator.backward(mean_loss(
        net, i % 2 == 0 ? accelerator.distribute(batch) : batch));
    mean_loss(reference, batch).backward();
    expect_same_gradients(*net, *reference, what);
    EXPECT_FALSE(
        accel::distributed::is_distributed(net->parameters()[0].grad()));
    // Both in one loss; accumulates from the second time on.
    accelerator.backward(
        mean_loss(net, accelerator.distribute(batch)) + mean_loss(net, batch * 2));
    (mean_loss(reference, batch) + mean_loss(reference, batch * 2)).backward();
    expect_same_gradients(*net, *reference, what + ", both");
    if (i == 3) {
      net->zero_grad(/*set_to_none=*/false);
      reference->zero_grad(/*set_to_none=*/false);
    }
  }
}

TEST(Gradients, WholeAndInParts) {
  run_all("whole_and_in_parts");
}

ACCEL_RANK_FUNCTION(weighted_by_units) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  accelerator.prepare(net);
  const auto batch = rows(7);
  // A mean over the rows that count, which are spread unevenly.
  const auto mask =
      torch::tensor({1, 0, 0, 1, 1, 1, 1}, torch::kDouble).unsqueeze(1);
  const auto masked = [](auto& model, const auto& x, const auto& m) {
    return (model->forward(x).pow(2) * m).sum() / m.sum().clamp_min(1);
  };
  auto step = accelerator.accumulate(net);
  const auto [x, m] = accelerator.distribute(std::tuple(batch, mask));
  accelerator.backward(masked(net, x, m), m.sum().template item<double>());
  masked(reference, batch, mask).backward();
  expect_same_gradients(*net, *reference, "masked mean");
}

TEST(Gradients, WeightedByUnits) {
  run_all("weighted_by_units");
}

ACCEL_RANK_FUNCTION(sizes_in_shapes) {
  Accelerator accelerator(kMatch);
  const auto batch = rows(12);
  auto step = accelerator.accumulate();
  const auto part = accelerator.distribute(batch);
  EXPECT_EQ(part.size(0), 12);
  const auto viewed = part.view({part.size(0) / 3, -1});
  EXPECT_TRUE(torch::equal(accelerator.full(viewed), batch.view({4, -1})));
  // A second batch of the step may have any size.
  EXPECT_EQ(accelerator.distribute(rows(9)).size(0), 9);
}

// A state that is kept over the batches is cut where its samples are.
ACCEL_RANK_FUNCTION(kept_states) {
  Accelerator accelerator(kMatch);
  const auto world = accelerator.num_processes();
  for (int64_t samples = 1; samples < 10; ++samples) {
    const auto state = torch::rand({2, samples, 3});
    for (const int64_t dim : {1, -2}) {
      const auto kept = accelerator.distribute(state, dim);
      EXPECT_EQ(kept.sizes(), state.sizes()) << samples;
      EXPECT_TRUE(torch::equal(accelerator.full(kept), state)) << samples;
      const auto own = accel::distributed::to_local(kept);
      const auto rest = samples % world > accelerator.process_index() ? 1 : 0;
      EXPECT_EQ(
          own.size(1), samples < world ? samples : samples / world + rest)
          << samples;
    }
  }
  const auto error = error_of([&] { accelerator.distribute(torch::rand({4}), 1); });
  EXPECT_TRUE(contains(error, "dimension 1")) << error;
}

TEST(Gradients, KeptStates) {
  run_all("kept_states");
}

ACCEL_RANK_FUNCTION(squeezed_rows) {
  Accelerator accelerator(kMatch);
  // Down to one row for each process, and one row for all of them.
  const auto world = accelerator.num_processes();
  const auto batch = rows(2 * world).view({2 * world, 1, -1});
  for (const int64_t count : {2 * world, world, int64_t{1}}) {
    const auto whole = batch.slice(0, 0, count);
    const auto squeezed = accelerator.distribute(whole).squeeze();
    EXPECT_EQ(squeezed.sizes(), whole.squeeze().sizes()) << count;
    EXPECT_TRUE(torch::equal(accelerator.full(squeezed), whole.squeeze()))
        << count;
  }
}

// Tensors that no model and no optimizer has: they are updated by hand, and
// need no prepare.
ACCEL_RANK_FUNCTION(raw_tensors) {
  Accelerator accelerator(kMatch);
  struct Layer {
    torch::Tensor weight = torch::sin(torch::arange(6, torch::kDouble))
                               .view({3, 2})
                               .requires_grad_();
    torch::Tensor bias =
        torch::zeros({2}, torch::dtype(torch::kDouble).requires_grad(true));
    torch::Tensor loss(const torch::Tensor& x) const {
      // The second term does not come from the batch.
      return (x.mm(weight) + bias).pow(2).sum(1).mean() +
          0.1 * weight.pow(2).sum();
    }
    void update() {
      const torch::NoGradGuard no_grad;
      for (auto* tensor : {&weight, &bias}) {
        tensor->sub_(0.1 * tensor->grad());
        tensor->mutable_grad().zero_();
      }
    }
  };
  Layer ours;
  Layer reference;
  for (const int64_t size : {12, 7, 1, 5}) {
    const auto batch = rows(size, 3, 1.0 + size);
    {
      auto step = accelerator.accumulate();
      accelerator.backward(ours.loss(accelerator.distribute(batch)));
      const double norm =
          accelerator.clip_grad_norm_({ours.weight, ours.bias}, 0.5);
      accelerator.clip_grad_value_({ours.weight, ours.bias}, 0.3);
      reference.loss(batch).backward();
      EXPECT_NEAR(
          norm,
          torch::nn::utils::clip_grad_norm_(
              {reference.weight, reference.bias}, 0.5),
          1e-12);
      torch::nn::utils::clip_grad_value_(
          {reference.weight, reference.bias}, 0.3);
    }
    ours.update();
    reference.update();
    const auto what = std::to_string(size) + " rows";
    expect_same(accelerator.full(ours.weight), reference.weight, what);
    expect_same(accelerator.full(ours.bias), reference.bias, what);
  }
}

TEST(Gradients, RawTensorsNeedNoPrepare) {
  run_all("raw_tensors");
}

// A gradient whose parts cancel but for rounding is one number in its square, as in
// an Adam that is written by hand: a square root follows.
ACCEL_RANK_FUNCTION(squares_of_gradients) {
  Accelerator accelerator(kMatch);
  torch::manual_seed(4);
  const auto x = accelerator.distribute(torch::randn({12, 1000}, torch::kDouble));
  auto weight =
      torch::zeros({1000}, torch::dtype(torch::kDouble).requires_grad(true));
  accelerator.backward((weight * (x - x.mean(0))).sum());
  const auto g = weight.grad();
  EXPECT_GE((0.001 * g * g).min().item<double>(), 0);
  EXPECT_GE(((g / 3) * g).min().item<double>(), 0);
  EXPECT_GE((g.mul(0.7) / g).nan_to_num(1).min().item<double>(), 0);
}

TEST(Gradients, TheSquareOfOneThatCancelsIsNotNegative) {
  run_all("squares_of_gradients");
}

TEST(Gradients, SqueezedRows) {
  run_all("squeezed_rows");
}

TEST(Gradients, SizesInShapes) {
  run_all("sizes_in_shapes");
}

ACCEL_RANK_FUNCTION(clearing_gradients) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  SGD optimizer(net->parameters(), kSgd);
  torch::optim::SGD plain(reference->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  torch::optim::Optimizer& base = optimizer;
  torch::Tensor kept;
  torch::Tensor kept_copy;
  for (int64_t i = 0; i < 12; ++i) {
    const auto batch = rows(5 + i % 3, 3, 1.0 + i);
    const auto clear = [&](auto& model, torch::optim::Optimizer& any) {
      for (auto& parameter : model->parameters()) {
        auto& gradient = parameter.mutable_grad();
        switch (i % 6) {
          case 0:
            any.zero_grad();
            break;
          case 1:
            any.zero_grad(/*set_to_none=*/false);
            break;
          case 2:
            gradient.reset();
            break;
          case 3:
            if (gradient.defined()) {
              gradient.zero_();
            }
            break;
          case 4:
            gradient = torch::full_like(parameter, 0.25);
            break;
          default: // accumulates
            break;
        }
      }
    };
    auto step = accelerator.accumulate(net);
    clear(net, base);
    clear(reference, plain);
    accelerator.backward(mean_loss(net, accelerator.distribute(batch)));
    mean_loss(reference, batch).backward();
    const auto what = "step " + std::to_string(i);
    expect_same_gradients(*net, *reference, what);
    if (i == 5) {
      // A gradient that the program keeps does not change when the memory
      // would be used again.
      kept = net->parameters()[0].grad();
      kept_copy = kept.clone();
    }
    optimizer.step();
    plain.step();
    expect_same_parameters(*net, *reference, what);
  }
  EXPECT_TRUE(torch::equal(kept, kept_copy));
}

TEST(Gradients, SurviveEveryWayOfClearing) {
  run_all("clearing_gradients");
}

ACCEL_RANK_FUNCTION(a_parameter_grows) {
  Accelerator accelerator; // plain means over the processes
  torch::nn::Linear net(torch::nn::LinearOptions(2, 3).bias(false));
  accelerator.prepare(net);
  const auto rank = static_cast<double>(accelerator.process_index());
  const auto mean = static_cast<double>(accelerator.num_processes() - 1) / 2;
  for (const int64_t rows : {3, 5, 2}) {
    if (rows != 3) {
      net->weight.set_data(torch::ones({rows, 2}));
      net->weight.mutable_grad().reset();
    }
    accelerator.backward((net->weight * rank).sum());
    expect_same(net->weight.grad(), torch::full({rows, 2}, mean), "of these sizes");
  }
}

TEST(Gradients, FollowSetDataOfOtherSizes) {
  run_and_expect_success("a_parameter_grows", 2);
}

ACCEL_RANK_FUNCTION(several_backwards) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  accelerator.prepare(net);
  const auto batch = rows(5);
  auto step = accelerator.accumulate(net);
  const auto part = accelerator.distribute(batch);
  auto output = net->forward(part);
  accelerator.backward(
      output.pow(2).mean(), accel::BackwardOptions().retain_graph(true));
  accelerator.backward(output.abs().mean());
  auto expected = reference->forward(batch);
  expected.pow(2).mean().backward({}, /*retain_graph=*/true);
  expected.abs().mean().backward();
  expect_same_gradients(*net, *reference, "two losses");
}

TEST(Gradients, SeveralBackwards) {
  run_all("several_backwards");
}

/// A gradient to begin with; and calls that the library has not been told of, whose
/// gradients are parts of sums.
ACCEL_RANK_FUNCTION(gradients_to_begin_with) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  auto reference = make_net();
  SGD optimizer(net->parameters(), kSgd), plain(reference->parameters(), kSgd);
  accelerator.prepare(net, optimizer);
  const auto batch = rows(5);
  for (int i = 0; i < 3; ++i) {
    auto output = net->forward(accelerator.distribute(batch));
    auto expected = reference->forward(batch);
    const auto gradient = expected.detach().cos();
    optimizer.zero_grad();
    plain.zero_grad();
    accelerator.backward(
        output, accel::BackwardOptions().gradient(gradient).retain_graph(true));
    output.mean().backward(torch::tensor(-1., torch::kDouble), true);
    accelerator.backward(output.abs().mean());
    expected.backward(gradient, true);
    expected.mean().backward(torch::tensor(-1., torch::kDouble), true);
    expected.abs().mean().backward();
    expect_same_gradients(*net, *reference, "three backwards");
    optimizer.step();
    plain.step();
    expect_same_parameters(*net, *reference, "three backwards");
  }
  const auto output = net->forward(accelerator.distribute(batch));
  const auto error = error_of([&] {
    accelerator.backward(
        output, accel::BackwardOptions().gradient(torch::ones({2}, torch::kDouble)));
  });
  EXPECT_TRUE(contains(error, "a gradient of sizes [2]")) << error;
}

TEST(Gradients, ToBeginWith) {
  run_all("gradients_to_begin_with");
}

ACCEL_RANK_FUNCTION(other_batches) {
  Accelerator accelerator(kMatch);
  auto net = make_net();
  accelerator.prepare(net);
  const bool last = accelerator.process_index() == accelerator.num_processes() - 1;
  // The same rows in another order, and one number that is another one.
  const auto turned = last ? rows(12).flip(0) : rows(12);
  auto changed = rows(12);
  changed[7][0] += last ? 1 : 0;
  const bool checked = std::getenv("ACCEL_CHECK_BATCHES") == nullptr;
  for (const auto& batch : {turned, changed}) {
    auto step = accelerator.accumulate(net);
    const auto loss = mean_loss(net, accelerator.distribute(batch));
    const auto error = error_of([&] { accelerator.backward(loss); });
    if (checked && accelerator.use_distributed()) {
      EXPECT_TRUE(contains(error, "have made different batches")) << error;
      EXPECT_TRUE(contains(
          error,
          "process 0 and process " +
              std::to_string(accelerator.num_processes() - 1)))
          << error;
    } else {
      EXPECT_EQ(error, "no error");
    }
    net->zero_grad();
  }
  // What comes behind is not concerned.
  auto step = accelerator.accumulate(net);
  const auto loss = mean_loss(net, accelerator.distribute(rows(12)));
  EXPECT_EQ(error_of([&] { accelerator.backward(loss); }), "no error");
}

TEST(Gradients, OtherBatchesAreNoticed) {
  run_all("other_batches");
}

TEST(Gradients, OtherBatchesOnRequest) {
  const auto guard = accel::patch_environment({{"ACCEL_CHECK_BATCHES", "0"}});
  run_and_expect_success("other_batches", 2);
}
