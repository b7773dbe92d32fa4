#pragma once

#include <accel/optim/optimizer.h>

#include <vector>

namespace accel::detail {

/// The prepared optimizers that exist, in the order in which they were
/// prepared.
std::vector<OptimizerControl*>& prepared_optimizers();

/// Those that take part in accumulation and scaling: the prepared ones, and in
/// `match_single_device`, where gradients need nobody who averages them, all
/// accelerated optimizers that exist, in the order in which they were made.
const std::vector<OptimizerControl*>& learning_optimizers();

/// All tensors that an optimizer steps.
std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer);

/// The accumulation windows of optimizers.
struct Windows {
  /// `match_single_device`: that of this optimizer's steps.
  static GradientWindow& of(const OptimizerControl& optimizer);
  /// Whether the next `step` updates the parameters: it does not on a micro-step of a
  /// window other than the last.
  static bool steps_now(const OptimizerControl& optimizer);
  /// Whether the last `step` has; true before the first.
  static bool stepped(const OptimizerControl& optimizer);
  /// Before a step that updates: makes the gradients those of the whole window and of
  /// all processes. Collective.
  static void complete(OptimizerControl& optimizer);
};

/// `match_single_device`: where all optimizers that have one of `parameters` update them at
/// their next step, makes the gradients those of their windows and of all processes, and
/// returns true; also where no optimizer has any. Collective.
bool complete_windows(const std::vector<at::Tensor>& parameters);

/// The mean of what the window of its optimizer has of `parameter`, with its gradient.
at::Tensor mean_of_window(const at::Tensor& parameter);

} // namespace accel::detail
