#pragma once

#include <accel/optim/optimizer.h>

#include <vector>

namespace accel::detail {

/// The prepared optimizers that exist, in the order in which they were
/// prepared.
std::vector<OptimizerControl*>& prepared_optimizers();

/// All tensors that an optimizer steps.
std::vector<at::Tensor> parameters_of(torch::optim::Optimizer& optimizer);

} // namespace accel::detail
