#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace torch::optim {
class Optimizer;
}

namespace accel::parallel {

/// Calls `visit` with every tensor that an optimizer of LibTorch's keeps, as it is
/// in the state, and with the parameter that it is kept for. What classes of the
/// program's own keep is not seen.
void each_state_tensor(
    torch::optim::Optimizer& optimizer,
    const std::function<void(at::Tensor& tensor, const at::Tensor& parameter)>&
        visit);

/// Moves what an optimizer keeps to the device of the parameter that it is kept for:
/// Adagrad makes it in its constructor, before the model is moved.
void move_beside_parameters(torch::optim::Optimizer& optimizer);

} // namespace accel::parallel
