#pragma once

#include <accel/export.h>

#include <torch/arg.h>
#include <torch/types.h>

#include <optional>

namespace accel {

/// What the optimizer LOMO does with gradients before it uses them.
struct LomoOptions {
  /// Each element of a gradient is brought between minus and plus this.
  TORCH_ARG(std::optional<double>, clip_grad_value) = std::nullopt;
  /// The norm of all gradients together is at most this. It has to be known before
  /// the first update: backward runs twice.
  TORCH_ARG(std::optional<double>, clip_grad_norm) = std::nullopt;
};

/// Accelerate's `lomo_backward`: backward and the update of LOMO in one
/// (`p -= learning_rate * p.grad`, in the order in which backward comes to the
/// parameters). Each gradient is dropped as soon as its parameter has been updated,
/// so that no two of them are there at a time, and no optimizer keeps anything.
///
///     accelerator.prepare(model);
///     for (auto& batch : *loader) {
///       auto loss = torch::mse_loss(model->forward(batch.data), batch.target);
///       accel::lomo_backward(loss, 1e-3);
///     }
///
/// Updates the parameters of all prepared models; other tensors get their gradients
/// as ever (with `clip_grad_norm` those of both backwards). With several processes
/// the gradients are those that `Accelerator::backward` gives; divided parameters
/// are updated in their parts.
/// Without `match_single_device` every process must reach the same parameters.
///
/// Throws `c10::Error` with gradient accumulation (there is no gradient to add to),
/// with mixed precision fp16 (whether gradients are finite is known too late), for
/// gradients that are kept from before, and without an Accelerator. Collective.
ACCEL_API void lomo_backward(
    const torch::Tensor& loss,
    double learning_rate,
    const LomoOptions& options = {});

} // namespace accel
