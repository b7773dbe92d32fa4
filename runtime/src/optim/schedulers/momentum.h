#pragma once

#include <torch/optim/optimizer.h>

namespace accel::optim::detail {

/// True when the group has a momentum (SGD, RMSprop) or a beta1 (Adam, AdamW).
bool has_momentum(const torch::optim::OptimizerOptions& options);
/// It must have one.
double get_momentum(const torch::optim::OptimizerOptions& options);
void set_momentum(torch::optim::OptimizerOptions& options, double momentum);

} // namespace accel::optim::detail
