#include "distributed/rules/table.h"
#include "distributed/rules/strategy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>

// Convolutions in their CPU and CUDA forms. Samples stay where they are; so do
// the channels that come out, where the weight is cut in them, and those that
// go in, which leave a part of a sum. What is cut along the picture runs whole.

namespace accel::distributed::convolution_rules {
namespace {

/// The dimensions of a weight.
struct Channels {
  int8_t out;
  int8_t in;
};

Channels channels(bool transposed) {
  return transposed ? Channels{1, 0} : Channels{0, 1};
}

/// Whether a process has a single channel, which shows nothing of the order in memory
/// that kernels take from an unusual input. Each argument's channels are in the
/// dimension of that number.
bool hides_order(const Call& call, std::initializer_list<int8_t> channels) {
  if (has_usual_strides(call.tensor(0))) {
    return false;
  }
  size_t i = 0;
  return std::any_of(channels.begin(), channels.end(), [&](int8_t dim) {
    const size_t argument = i++;
    const auto place = call.place(argument);
    return dim >= 0 && place.is_shard(dim) &&
        has_single_rows(call.axis(), place, call.tensor(argument).sizes());
  });
}

/// convolution: input, weight, bias, stride, padding, dilation, transposed,
/// output_padding, groups.
bool convolution(Call& call) {
  if (call.tensor(0).dim() != call.tensor(1).dim()) {
    return false;
  }
  const at::Tensor& filters = call.tensor(1);
  // In the backward of a backward, gradients with channels and samples exchanged.
  const bool exchanged = filters.transpose(0, 1).is_contiguous();
  if (!exchanged && !filters.is_contiguous(filters.suggest_memory_format())) {
    // Kernels take the result's order in memory from a weight that lies otherwise,
    // and of a part of it they would take another.
    return false;
  }
  c10::SmallVector<Strategy, 5> ways{
      {{0, kWhole, kWhole}, {0}},
      {{kSum, kWhole, kSum}, {kSum}},
      {{kWhole, kSum, kSum}, {kSum}},
  };
  if (call.integer(8) == 1) {
    const auto weight = channels(call.boolean(6));
    if (!hides_order(call, {-1, weight.out, 0})) {
      ways.push_back({{kWhole, weight.out, 0}, {1}});
    }
    if (!hides_order(call, {1, weight.in})) {
      ways.push_back({{1, weight.in, kSum}, {kSum}});
    }
  }
  return in_parts(call, ways);
}

/// convolution_backward: grad_output, input, weight, bias_sizes, stride, …;
/// the overrideable one has no bias_sizes.
bool convolution_backward(Call& call) {
  if (!call.info().writes.empty() ||
      call.tensor(1).dim() != call.tensor(2).dim()) {
    return false;
  }
  c10::SmallVector<Strategy, 4> ways{
      {{0, 0, kWhole}, {0, kSum, kSum}},
      {{kSum, kWhole, kWhole}, {kSum, kSum, kSum}},
  };
  const auto groups = call.index("groups");
  if (call.integer(groups) == 1) {
    const auto weight = channels(call.boolean(call.index("transposed")));
    ways.push_back({{1, kWhole, weight.out}, {kSum, weight.out, 0}});
    ways.push_back({{kWhole, 1, weight.in}, {1, weight.in, kWhole}});
  }
  const auto chosen = choose(call, ways);
  if (!chosen) {
    return false;
  }
  const auto bias_sizes = call.index("bias_sizes");
  if (chosen.strategy->arguments[0] == 1 && bias_sizes >= 0 &&
      !call.at(bias_sizes).isNone()) {
    const auto rows = call.axis().rows(chosen.n, chosen.cut);
    call.set(bias_sizes, std::vector<int64_t>{rows});
  }
  run_strategy(call, chosen);
  return true;
}

/// The forms behind it: the batch or, without one, nothing.
bool of_samples(Call& call, c10::ArrayRef<Strategy> ways) {
  return call.tensor(0).dim() == call.tensor(1).dim() && in_parts(call, ways);
}

/// self, weight, and no bias.
bool without_bias(Call& call) {
  return of_samples(call, Strategy{{0, kWhole}, {0}});
}

/// self, weight, bias.
bool with_bias(Call& call) {
  return of_samples(call, Strategy{{0, kWhole, kWhole}, {0}});
}

/// self, weight, z, bias: relu(convolution + alpha * z).
bool add_relu(Call& call) {
  return of_samples(call, Strategy{{0, kWhole, 0, kWhole}, {0}});
}

/// self, weight (which may be a matrix), kernel_size, bias.
bool slow(Call& call) {
  const auto batched =
      static_cast<int64_t>(call.integers(2).size()) + 2 == call.tensor(0).dim();
  return batched && in_parts(call, Strategy{{0, kWhole, kWhole}, {0}});
}

/// grad_output, self, weight, kernel_size.
bool slow_backward(Call& call) {
  return call.tensor(1).dim() == 4 &&
      in_parts(call, Strategy{{0, 0, kWhole}, {0, kSum, kSum}});
}

/// The batch is in dimension 1: self, weight, bias.
bool conv_tbc(Call& call) {
  return in_parts(call, Strategy{{1, kWhole, kWhole}, {1}});
}

} // namespace

const Family& family() {
  static const Family rows{
      {"aten::convolution", convolution, "samples; channels of the weight that come out or, with the input's, go in; P", "nothing"},
      {"aten::_convolution", convolution, "as convolution", "nothing"},
      {"aten::convolution_overrideable", convolution, "as convolution", "nothing"},
      {"aten::convolution_backward", convolution_backward, "as convolution; with cut samples the gradients of weight and bias are P", "nothing"},
      {"aten::convolution_backward_overrideable", convolution_backward, "as convolution_backward", "nothing"},
      {"aten::cudnn_convolution", without_bias, "samples", "nothing"},
      {"aten::cudnn_convolution_transpose", without_bias, "samples", "nothing"},
      {"aten::cudnn_convolution_relu", with_bias, "samples", "nothing"},
      {"aten::cudnn_convolution_add_relu", add_relu, "samples", "nothing"},
      {"aten::miopen_convolution", with_bias, "samples", "nothing"},
      {"aten::miopen_convolution_transpose", with_bias, "samples", "nothing"},
      {"aten::miopen_depthwise_convolution", with_bias, "samples", "nothing"},
      {"aten::miopen_convolution_relu", with_bias, "samples", "nothing"},
      {"aten::miopen_convolution_add_relu", add_relu, "samples", "nothing"},
      {"aten::mkldnn_convolution", with_bias, "samples", "nothing"},
      {"aten::_slow_conv2d_forward", slow, "samples", "nothing"},
      {"aten::_slow_conv2d_backward", slow_backward, "samples; the gradients of weight and bias are P", "nothing"},
      {"aten::slow_conv3d_forward", slow, "samples", "nothing"},
      {"aten::slow_conv_dilated2d", slow, "samples", "nothing"},
      {"aten::slow_conv_dilated3d", slow, "samples", "nothing"},
      {"aten::slow_conv_transpose2d", slow, "samples", "nothing"},
      {"aten::slow_conv_transpose3d", slow, "samples", "nothing"},
      {"aten::_conv_depthwise2d", slow, "samples", "nothing"},
      {"aten::conv_depthwise3d", slow, "samples", "nothing"},
      {"aten::conv_tbc", conv_tbc, "samples (dimension 1)", "nothing"},
  };
  return rows;
}

} // namespace accel::distributed::convolution_rules
