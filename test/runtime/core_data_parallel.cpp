// Models that are called on parts of a batch, whose outputs every process then
// has in full, against the same calls on one device.

#include "gradients.h"

#include <accel/gradient_state.h>

#include <tuple>
#include <vector>

using accel::Accelerator;
using accel::GradientState;
using namespace accel::test;

namespace {

/// Batch norm and dropout are those of the whole batch.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : in(register_module(
            "in",
            torch::nn::Linear(torch::nn::LinearOptions(3, 6).bias(false)))),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        drop(register_module("drop", torch::nn::Dropout(0.3))),
        out(register_module("out", torch::nn::Linear(6, 3))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return out(drop(torch::tanh(norm(in(x)))));
  }

  torch::nn::Linear in;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear out;
};
TORCH_MODULE(Net);

Net make(int64_t seed) {
  torch::manual_seed(seed);
  Net net;
  net->to(torch::kDouble);
  return net;
}

/// Every sample is compared with every other one: no sum over the parts of a
/// batch gives this.
torch::Tensor coupled(const torch::Tensor& output) {
  const auto distances = (output.unsqueeze(0) - output.unsqueeze(1)).pow(2).sum(2);
  return torch::logsumexp(-distances, 1).mean() + output.norm();
}

/// `loss_of` with `call` calling models here and on one device.
template <typename Loss>
void compare(
    Accelerator& accelerator,
    Net& net,
    Net& alone,
    const std::string& what,
    Loss loss_of) {
  net->zero_grad();
  alone->zero_grad();
  torch::manual_seed(9);
  const auto loss = loss_of(net, [&](auto& model, const auto&... inputs) {
    return accelerator.data_parallel(model, inputs...);
  });
  accelerator.backward(loss);
  torch::manual_seed(9);
  const auto expected = loss_of(alone, [](auto& model, const auto&... inputs) {
    return accel::detail::call_model(model, inputs...);
  });
  expected.backward();
  expect_same(loss, expected, what + ": loss");
  expect_same_gradients(*net, *alone, what);
  const auto buffers = alone->named_buffers();
  for (const auto& item : net->named_buffers()) {
    expect_same(item.value(), buffers[item.key()], what + ": " + item.key());
  }
  EXPECT_FALSE(GradientState::get().share()) << what;
}

void run_up_to_four(const std::string& function) {
  for (const int world : {1, 2, 3, 4}) {
    run_and_expect_success(function, world);
  }
}

} // namespace

ACCEL_RANK_FUNCTION(parallel_follows_one_device) {
  Accelerator accelerator(kMatch);
  auto net = make(4);
  auto alone = make(4);
  accelerator.prepare(net);
  // Some of them have fewer rows than there are processes, or as many, where
  // batch norm would refuse to train on single rows.
  for (const int64_t count : {12, 7, 5, 3, 2}) {
    const auto what = std::to_string(count) + " rows";
    compare(accelerator, net, alone, what, [&](Net& model, auto call) {
      return coupled(call(model, rows(count)));
    });
    // The output of one model is the input of the next call, and the inputs
    // are used beside it.
    compare(accelerator, net, alone, what + ", twice", [&](Net& model, auto call) {
      const auto x = rows(count);
      const auto once = call(model, x);
      return coupled(call(model, once * 2)) + (once * x).sum();
    });
    // What only some of the rows enter.
    compare(accelerator, net, alone, what + ", some", [&](Net& model, auto call) {
      return call(model, rows(count)).index({0}).exp().sum();
    });
  }
}

TEST(DataParallel, FollowsOneDevice) {
  run_up_to_four("parallel_follows_one_device");
}

ACCEL_RANK_FUNCTION(parallel_gradients_of_inputs) {
  Accelerator accelerator(kMatch);
  auto net = make(4);
  auto alone = make(4);
  net->eval();
  alone->eval();
  accelerator.prepare(net);
  for (const int64_t count : {12, 7, 2, 1}) {
    std::vector<torch::Tensor> gradients;
    compare(
        accelerator,
        net,
        alone,
        "penalty of " + std::to_string(count) + " rows",
        [&](Net& model, auto call) {
          auto x = rows(count).requires_grad_();
          const auto output = call(model, x);
          // The gradient of what is no mean over the rows, itself in a loss.
          const auto gradient = torch::autograd::grad(
              {output.pow(2).sum() + output.norm()},
              {x},
              {},
              /*retain_graph=*/true,
              /*create_graph=*/true)[0];
          gradients.push_back(gradient.detach());
          return coupled(output) + (gradient.norm(2, 1) - 1).pow(2).mean();
        });
    expect_same(gradients[0], gradients[1], "gradient of the inputs");
  }
}

TEST(DataParallel, InputsHaveGradients) {
  run_up_to_four("parallel_gradients_of_inputs");
}

ACCEL_RANK_FUNCTION(parallel_types) {
  Accelerator accelerator(kMatch);
  auto net = make(4);
  auto alone = make(4);
  accelerator.prepare(net);
  const auto table = rows(5, 3, 2);
  compare(accelerator, net, alone, "types", [&](Net& model, auto call) {
    // Several inputs and outputs, of which one has two rows for each sample, one
    // is not there, and a tensor that is no batch.
    const auto parts = [&](const torch::Tensor& x,
                           const std::vector<torch::Tensor>& more,
                           bool negate) {
      const auto y = model->forward(x) + more[0] + table.sum(0);
      return std::make_tuple(
          torch::cat({y, y.exp()}, 1).view({-1, 3}),
          std::vector<torch::Tensor>{negate ? -y : y, torch::Tensor()});
    };
    const auto [twice, list] = call(
        parts, rows(7), std::vector<torch::Tensor>{rows(7, 3, 3)}, true);
    EXPECT_FALSE(list[1].defined());
    EXPECT_EQ(twice.size(0), 14);
    return coupled(twice) + coupled(list[0]);
  });
  // Without gradients, in evaluation mode, by a pointer and by the module.
  const torch::NoGradGuard no_grad;
  net->eval();
  alone->eval();
  const auto expected = alone->forward(rows(7));
  const auto pointer = net.ptr();
  expect_same(accelerator.data_parallel(pointer, rows(7)), expected, "pointer");
  expect_same(accelerator.data_parallel(*net, rows(7)), expected, "module");
  torch::nn::AnyModule any(net);
  expect_same(accelerator.data_parallel(any, rows(7)), expected, "any");
  torch::nn::Sequential sequential(net);
  expect_same(
      accelerator.data_parallel(sequential, rows(7)), expected, "sequential");
}

ACCEL_RANK_FUNCTION(parallel_in_place) {
  Accelerator accelerator(kMatch);
  const auto halve = [](torch::Tensor t) { return t.div_(2) + 1; };
  auto x = rows(7);
  expect_same(accelerator.data_parallel(halve, x), rows(7) / 2 + 1, "output");
  expect_same(x, rows(7) / 2, "input");
  if (accelerator.use_distributed()) {
    const auto error = error_of([&] {
      accelerator.data_parallel(halve, rows(7).requires_grad_() * 2);
    });
    EXPECT_TRUE(contains(error, "in place, with a gradient")) << error;
  }
}

TEST(DataParallel, ChangesInputsAsOnOneDevice) {
  run_up_to_four("parallel_in_place");
}

TEST(DataParallel, TakesWhatModelsTakeAndReturn) {
  run_up_to_four("parallel_types");
}

ACCEL_RANK_FUNCTION(parallel_beside_parts) {
  Accelerator accelerator(kMatch);
  auto net = make(4);
  auto alone = make(4);
  accelerator.prepare(net);
  auto step = accelerator.accumulate(net);
  const auto part = accelerator.shard_batch(rows(10));
  const auto share = GradientState::get().share();
  // A batch of another size in the same step, which goes on behind it.
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const auto output = accelerator.data_parallel(net, rows(7));
  torch::manual_seed(1);
  expect_same(output, alone->forward(rows(7)), "output");
  EXPECT_EQ(GradientState::get().share()->global, share->global);
  EXPECT_EQ(
      accelerator.gather_for_metrics(part).size(0), 10);
}

TEST(DataParallel, LeavesTheStepsBatchAsItIs) {
  run_up_to_four("parallel_beside_parts");
}

ACCEL_RANK_FUNCTION(parallel_errors) {
  Accelerator accelerator(kMatch);
  const bool several = accelerator.use_distributed();
  const auto x = rows(7);
  const auto fails = [&](auto model, const char* why, const auto&... inputs) {
    const auto error =
        error_of([&] { accelerator.data_parallel(model, inputs...); });
    EXPECT_TRUE(several ? contains(error, why) : error == "no error") << error;
    EXPECT_FALSE(GradientState::get().share());
  };
  const auto same = [](const torch::Tensor& t) { return t; };
  fails([](const torch::Tensor& t) { return t.sum(); }, "returns a tensor", x);
  // As many rows as one of the processes has.
  fails(
      [](const torch::Tensor&) { return rows(4); }, "data_parallel", x);
  fails(
      [](const torch::Tensor& a, const torch::Tensor& b) { return a + b.sum(); },
      "equally many rows",
      x,
      rows(5));
  fails(same, "at least one", x.narrow(0, 0, 0));
  fails(same, "at least one", torch::tensor(1.0));
  if (several) {
    const auto other = accelerator.is_main_process() ? x : x.flip(0);
    const auto error =
        error_of([&] { accelerator.data_parallel(same, other); });
    EXPECT_TRUE(contains(error, "different batches for data_parallel at"))
        << error;
  }
  // What is thrown in the model comes out, and the step is as before.
  EXPECT_TRUE(contains(
      error_of([&] {
        accelerator.data_parallel(
            [](const torch::Tensor& t) -> torch::Tensor {
              TORCH_CHECK(false, "of the model");
              return t;
            },
            x);
      }),
      "of the model"));
  EXPECT_FALSE(GradientState::get().share());
  expect_same(accelerator.data_parallel(same, x), x, "behind errors");
}

TEST(DataParallel, WrongCallsAreErrorsOnAllProcesses) {
  run_up_to_four("parallel_errors");
}
