// Kernels of layers that the CPU has none of, composed of others: dropout, and
// the cells of LSTM and GRU, which LibTorch takes for devices.

#include "kernels.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace accel::sim {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> native_dropout(
    const Tensor& input,
    double p,
    std::optional<bool> train) {
  if (train && !*train) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const auto mask =
      at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0. : 1 / (1 - p)), mask};
}

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  return grad * mask * scale;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  auto gates = input_gates + hidden_gates;
  if (input_bias && input_bias->defined()) {
    gates = gates + *input_bias + *hidden_bias;
  }
  const auto parts = gates.chunk(4, 1);
  const auto in = parts[0].sigmoid();
  const auto forget = parts[1].sigmoid();
  const auto cell = parts[2].tanh();
  const auto out = parts[3].sigmoid();
  const auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias) {
  const bool has_hy = grad_hy && grad_hy->defined();
  const bool has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) {
    return {};
  }
  const auto parts = workspace.chunk(4, 1);
  const auto& in = parts[0];
  const auto& forget = parts[1];
  const auto& cell = parts[2];
  const auto& out = parts[3];
  const auto tanh = cy.tanh();
  const auto hy = has_hy ? *grad_hy : at::zeros_like(cx);
  auto state = hy * out * (1 - tanh * tanh);
  if (has_cy) {
    state = state + *grad_cy;
  }
  const auto gates = at::cat(
      {state * cell * in * (1 - in),
       state * cx * forget * (1 - forget),
       state * in * (1 - cell * cell),
       hy * tanh * out * (1 - out)},
      1);
  return {gates, state * forget, has_bias ? gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  const bool biased = input_bias && input_bias->defined();
  const auto in = (biased ? input_gates + *input_bias : input_gates).chunk(3, 1);
  const auto hidden =
      (biased ? hidden_gates + *hidden_bias : hidden_gates).chunk(3, 1);
  const auto reset = (in[0] + hidden[0]).sigmoid();
  const auto keep = (in[1] + hidden[1]).sigmoid();
  const auto fresh = (in[2] + reset * hidden[2]).tanh();
  return {
      fresh + keep * (hx - fresh),
      at::cat({reset, keep, fresh, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad, const Tensor& workspace, bool has_bias) {
  const auto parts = workspace.chunk(5, 1);
  const auto& reset = parts[0];
  const auto& keep = parts[1];
  const auto& fresh = parts[2];
  const auto of_fresh = grad * (1 - keep) * (1 - fresh * fresh);
  const auto of_keep = grad * (parts[3] - fresh) * keep * (1 - keep);
  const auto of_reset = of_fresh * parts[4] * reset * (1 - reset);
  const auto in = at::cat({of_reset, of_keep, of_fresh}, 1);
  const auto hidden = at::cat({of_reset, of_keep, of_fresh * reset}, 1);
  return {
      in,
      hidden,
      grad * keep,
      has_bias ? in.sum(0) : Tensor(),
      has_bias ? hidden.sum(0) : Tensor()};
}

/// LibTorch's asks for its own kernel by the kind of device.
Tensor ldexp(const Tensor& x, const Tensor& exponent) {
  return x * at::pow(2.0, exponent);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("ldexp.Tensor", TORCH_FN(ldexp));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("ldexp.Tensor", TORCH_FN(ldexp));
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

} // namespace
} // namespace accel::sim
