#pragma once

#include <accel/export.h>

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::nn {
class Module;
}

namespace accel::parallel {

/// The parameters of a model, each once, in groups that are used at the same
/// time and gathered together: a layer, a block.
///
/// The model is taken apart into its children, and so are containers
/// (`Sequential`, `ModuleList`, `ModuleDict`) and children that hold more than
/// a quarter of it, for two units are in memory at a time. What a module that
/// is taken apart holds itself is a unit. Neighbours of less than a mebibyte
/// together are one: their messages would cost more than their memory. The same
/// on all processes.
ACCEL_API std::vector<std::vector<at::Tensor>> model_units(
    const torch::nn::Module& model);

} // namespace accel::parallel
