#pragma once

#include <torch/library.h>

namespace accel::distributed {

/// Registers kernels of their own, without a stack of boxed arguments, for the
/// operators that rule a training step. They do the case that rules it: one
/// axis, operands that lie as they must. What they give is what the operator's
/// rule gives; everything else they hand to `handle`.
void install_kernels(torch::Library& library);

} // namespace accel::distributed
