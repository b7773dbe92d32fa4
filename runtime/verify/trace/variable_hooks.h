#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>

namespace accel::verify {

/// Told about every `Tensor::backward` of the process: `run` runs it.
using BackwardObserver = void (*)(
    const at::Tensor& loss,
    const std::optional<at::Tensor>& gradient,
    const std::function<void()>& run);

/// Puts `observer` between the program and LibTorch's autograd. To be called
/// once, before the program's main.
void observe_backward(BackwardObserver observer);

/// Empty where this library, which was compiled for one LibTorch, fits the one
/// that the process uses; otherwise why not.
std::string libtorch_mismatch();

} // namespace accel::verify
