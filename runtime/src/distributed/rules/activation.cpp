#include "distributed/rules/strategy.h"
#include "distributed/rules/table.h"

#include <ATen/ATen.h>

// Activations and other pointwise operators that LibTorch does not tag as such,
// and those that nearly are: with a second result, or halving a dimension.

namespace accel::distributed::activation_rules {
namespace {

/// All tensors are cut in one dimension, any but `but`.
c10::SmallVector<Strategy, 4> all_dims(const Call& call, int64_t but) {
  c10::SmallVector<Strategy, 4> strategies;
  for (int64_t d = 0; d < call.tensor(0).dim(); ++d) {
    if (d != but) {
      Strategy strategy;
      strategy.arguments.assign(call.info().tensors.size(), d);
      strategy.results.assign(call.info().results, d);
      strategies.push_back(std::move(strategy));
    }
  }
  return strategies;
}

/// glu and its gradient: the dimension that is halved stays in one piece.
bool glu(Call& call) {
  const int64_t dims = call.tensor(0).dim();
  return in_parts(call, all_dims(call, call.dim(call.info().dim, dims)));
}

/// The second result is only there for backward: as large as the first on the
/// CPU, without elements on a GPU.
bool log_sigmoid(Call& call) {
  if (!call.info().writes.empty()) {
    return false;
  }
  auto strategies = all_dims(call, -1);
  for (auto& strategy : strategies) {
    strategy.results[1] = kWhole;
  }
  const auto chosen = choose(call, strategies);
  if (!chosen) {
    return false;
  }
  run_strategy(call, chosen);
  if (call.local_result(1).numel() != 0) {
    const auto place = Shard(chosen.strategy->results[0], chosen.cut);
    call.place_result(1, place, chosen.n);
  }
  return true;
}

/// grad_output, self, buffer.
bool log_sigmoid_backward(Call& call) {
  auto strategies = all_dims(call, -1);
  if (call.tensor(2).sizes() != call.tensor(1).sizes()) {
    for (auto& strategy : strategies) {
      strategy.arguments[2] = kWhole;
    }
  }
  return in_parts(call, strategies);
}

/// grad_output, self, and a weight of as many dimensions that is broadcast; the
/// gradient of the weight is not summed yet.
bool prelu_backward(Call& call) {
  const auto& weight = call.tensor(2);
  if (weight.dim() != call.tensor(1).dim()) {
    return false;
  }
  auto strategies = all_dims(call, -1);
  for (auto& strategy : strategies) {
    if (weight.size(strategy.arguments[0]) == 1) {
      strategy.arguments[2] = kWhole;
    }
  }
  return in_parts(call, strategies);
}

constexpr auto kAll = "operands that are cut differently";

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::leaky_relu", pointwise, "any", kAll},
      {"aten::leaky_relu_", pointwise, "any", kAll},
      {"aten::leaky_relu_backward", pointwise, "any", kAll},
      {"aten::elu_", pointwise, "any", kAll},
      {"aten::elu_backward", pointwise, "any", kAll},
      {"aten::celu_", pointwise, "any", kAll},
      {"aten::gelu_", pointwise, "any", kAll},
      {"aten::mish_", pointwise, "any", kAll},
      {"aten::hardtanh_", pointwise, "any", kAll},
      {"aten::hardtanh_backward", pointwise, "any", kAll},
      {"aten::hardsigmoid_", pointwise, "any", kAll},
      {"aten::hardsigmoid_backward", pointwise, "any", kAll},
      {"aten::hardswish", pointwise, "any", kAll},
      {"aten::hardswish_", pointwise, "any", kAll},
      {"aten::hardswish_backward", pointwise, "any", kAll},
      {"aten::hardshrink_backward", pointwise, "any", kAll},
      {"aten::softshrink_backward", pointwise, "any", kAll},
      {"aten::softplus_backward", pointwise, "any", kAll},
      {"aten::threshold_", pointwise, "any", kAll},
      {"aten::_prelu_kernel", pointwise, "any", kAll},
      {"aten::abs_", pointwise, "any", kAll},
      {"aten::eq_", pointwise, "any", kAll},
      {"aten::ne_", pointwise, "any", kAll},
      {"aten::lt_", pointwise, "any", kAll},
      {"aten::le_", pointwise, "any", kAll},
      {"aten::gt_", pointwise, "any", kAll},
      {"aten::ge_", pointwise, "any", kAll},
      {"aten::copysign_", pointwise, "any", kAll},
      {"aten::heaviside_", pointwise, "any", kAll},
      {"aten::gcd_", pointwise, "any", kAll},
      {"aten::lcm_", pointwise, "any", kAll},
      {"aten::xlogy_", pointwise, "any", kAll},
      {"aten::floor_divide", pointwise, "any", kAll},
      {"aten::floor_divide_", pointwise, "any", kAll},
      {"aten::rsub", pointwise, "any", kAll},
      {"aten::complex", pointwise, "any", kAll},
      {"aten::polar", pointwise, "any", kAll},
      {"aten::_prelu_kernel_backward", prelu_backward, "any shard", "nothing"},
      {"aten::log_sigmoid_forward", log_sigmoid, "any shard", "nothing"},
      {"aten::log_sigmoid_backward", log_sigmoid_backward, "any shard", "nothing"},
      {"aten::glu", glu, "any dimension but the halved one", "nothing"},
      {"aten::glu_backward", glu, "any dimension but the halved one", "nothing"},
      {"aten::frexp", [](Call& call) { return in_parts(call, all_dims(call, -1)); }, "any shard", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::activation_rules
