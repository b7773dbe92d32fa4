// register_sharding: operators of the program's own are done in parts, forward and
// backward, with the plain numbers; what cannot be registered is an error.

#include "expectations.h"
#include "multiprocess.h"

#include <accel/accel.h>

#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <atomic>
#include <tuple>
#include <vector>

using accel::Accelerator;
using accel::AcceleratorOptions;
using accel::register_sharding;
using accel::distributed::is_distributed;
using accel::distributed::Partial;
using accel::distributed::placements;
using accel::distributed::Replicate;
using accel::distributed::Shard;
using accel::distributed::Sharding;
using accel::test::contains;
using accel::test::error_of;
using accel::test::run_and_expect_success;
using torch::Tensor;

namespace {

/// The rows that the kernels below have seen.
std::atomic<int64_t> rows_seen{0};

Tensor scores(const Tensor& x, const Tensor& weight) {
  rows_seen += x.size(0);
  return (x * weight).sin();
}

std::tuple<Tensor, Tensor> scores_backward(
    const Tensor& gradient,
    const Tensor& x,
    const Tensor& weight) {
  rows_seen += x.size(0);
  const auto inner = gradient * (x * weight).cos();
  return {inner * weight, (inner * x).sum(0)};
}

Tensor twice(const Tensor& x) {
  return x * 2;
}

Tensor joined(at::TensorList list, const Tensor& x) {
  return at::stack(list).sum() * x;
}

Tensor& doubled(Tensor& x) {
  return x.mul_(2);
}

struct Scores : torch::autograd::Function<Scores> {
  static Tensor forward(
      torch::autograd::AutogradContext* context, Tensor x, Tensor weight) {
    context->save_for_backward({x, weight});
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("accel_test::scores", "")
                               .typed<Tensor(const Tensor&, const Tensor&)>();
    return op.call(x, weight);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("accel_test::scores_backward", "")
            .typed<std::tuple<Tensor, Tensor>(
                const Tensor&, const Tensor&, const Tensor&)>();
    const auto saved = context->get_saved_variables();
    const auto [x, weight] = op.call(gradients[0], saved[0], saved[1]);
    return {x, weight};
  }
};

AcceleratorOptions options() {
  return AcceleratorOptions().cpu(true).match_single_device(true);
}

std::vector<Sharding> by_rows(c10::ArrayRef<c10::IValue> /*arguments*/) {
  return {{{Shard(0), Replicate()}, {Shard(0)}}};
}

} // namespace

TORCH_LIBRARY(accel_test, m) {
  m.def("scores(Tensor x, Tensor weight) -> Tensor");
  m.def("scores_backward(Tensor gradient, Tensor x, Tensor weight) -> (Tensor, Tensor)");
  m.def("twice(Tensor x) -> Tensor");
  m.def("late(Tensor x) -> Tensor");
  m.def("joined(Tensor[] list, Tensor x) -> Tensor");
  m.def("doubled(Tensor(a!) x) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(accel_test, CPU, m) {
  m.impl("scores", scores);
  m.impl("scores_backward", scores_backward);
  m.impl("twice", twice);
  m.impl("late", twice);
  m.impl("joined", joined);
  m.impl("doubled", doubled);
}

ACCEL_RANK_FUNCTION(own_operators_in_parts) {
  Accelerator accelerator(options());
  register_sharding("accel_test::scores", by_rows);
  register_sharding(
      "accel_test::scores_backward", [](c10::ArrayRef<c10::IValue> arguments) {
        // Sizes are those of the whole tensors.
        EXPECT_EQ(arguments[1].toTensor().size(0), 7);
        return std::vector<Sharding>{
            {{Shard(0), Shard(0), Replicate()}, {Shard(0), Partial()}}};
      });
  const auto values = torch::sin(torch::arange(28, torch::kDouble)).view({7, 4});
  const auto plain_x = values.clone().requires_grad_();
  auto weight = torch::arange(1, 5, torch::kDouble).requires_grad_();
  const auto wanted = Scores::apply(plain_x, weight);
  wanted.square().sum().backward();
  const auto wanted_gradient = weight.grad().clone();
  weight.mutable_grad() = Tensor();

  rows_seen = 0;
  const auto x = accelerator.distribute(values).requires_grad_();
  const auto result = Scores::apply(x, weight);
  EXPECT_EQ(placements(result).at(0), Shard(0));
  EXPECT_TRUE(result.allclose(wanted));
  result.square().sum().backward();
  const auto mine = accel::distributed::to_local(x).size(0);
  EXPECT_EQ(rows_seen, 2 * mine);
  EXPECT_LT(mine, 7);
  EXPECT_EQ(placements(x.grad()).at(0), Shard(0));
  EXPECT_TRUE(x.grad().allclose(plain_x.grad()));
  EXPECT_TRUE(accelerator.full(weight.grad()).allclose(wanted_gradient));
  // No way cuts columns: rows are cut instead, or the whole tensors do it.
  const auto columns = accelerator.distribute(values, 1);
  EXPECT_TRUE(Scores::apply(columns, weight.detach()).allclose(wanted));
}

ACCEL_RANK_FUNCTION(what_cannot_be_registered) {
  Accelerator accelerator(options());
  const auto fails = [](const std::string& op, const std::string& why) {
    EXPECT_TRUE(contains(error_of([&] { register_sharding(op, by_rows); }), why))
        << op << ": " << error_of([&] { register_sharding(op, by_rows); });
  };
  fails("accel_test::nothing", "there is no operator \"accel_test::nothing\"");
  fails("aten::mm", "accel has a rule for \"aten::mm\"");
  fails("accel_test::doubled", "writes an argument");
  EXPECT_TRUE(contains(
      error_of([] { register_sharding("accel_test::twice", nullptr); }), "is empty"));
  const auto x = accelerator.distribute(torch::rand({7, 4}));
  const auto call = [&](const char* name) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(name, "")
        .typed<Tensor(const Tensor&)>()
        .call(x);
  };
  EXPECT_TRUE(call("accel_test::late").equal(x * 2)); // on whole tensors
  fails("accel_test::late", "has been called already");
  // A way that does not fit is an error of the call, on every process.
  register_sharding("accel_test::twice", by_rows);
  fails("accel_test::twice", "has been registered before");
  EXPECT_TRUE(contains(
      error_of([&] { call("accel_test::twice"); }),
      "a way has 2 inputs and 1 outputs, the operator 1 arguments"));
  register_sharding("accel_test::joined", [](c10::ArrayRef<c10::IValue> /*arguments*/) {
    return std::vector<Sharding>{{{Shard(0), Shard(0)}, {Shard(0)}}};
  });
  const auto of_list = error_of([&] {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("accel_test::joined", "")
        .typed<Tensor(at::TensorList, const Tensor&)>()
        .call({x}, x);
  });
  EXPECT_TRUE(contains(of_list, "input 0 is a list of tensors")) << of_list;
}

TEST(RegisterSharding, OwnOperatorsAreDoneInParts) {
  for (const int processes : {2, 3}) {
    run_and_expect_success("own_operators_in_parts", processes);
  }
}

TEST(RegisterSharding, WhatCannotBeRegisteredIsAnError) {
  run_and_expect_success("what_cannot_be_registered", 2);
}
