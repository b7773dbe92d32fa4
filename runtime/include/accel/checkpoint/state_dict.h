#pragma once

#include <accel/checkpoint/safetensors.h>
#include <accel/export.h>

#include <torch/arg.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace accel::checkpoint {

/// The parameters and buffers of `module` and its children, with Python's names
/// ("layer.0.weight") in Python's order: of each module its parameters, its
/// buffers, then its children. The tensors are the module's own, not copies. A
/// tensor that stands in two places (tied weights) is there under both names.
ACCEL_API StateDict state_dict(const torch::nn::Module& module);

/// The same without the second and later names of tensors that are one and the
/// same (tied weights): what a file can hold, and what Accelerate writes.
/// Throws where tensors overlap in memory without being the same, since the
/// connection would be lost.
ACCEL_API StateDict without_shared(const StateDict& tensors);

/// How strictly loading compares.
struct LoadOptions {
  /// Names that are missing or unexpected are an error. With `false` they are
  /// returned, and what is missing keeps its value.
  TORCH_ARG(bool, strict) = true;
  /// Convert values of another dtype, as Python does without a word. With
  /// `false` they are an error.
  TORCH_ARG(bool, convert_dtype) = false;
};

/// Names that only one side has.
struct IncompatibleKeys {
  /// In the module, not in what was loaded.
  std::vector<std::string> missing;
  /// In what was loaded, not in the module.
  std::vector<std::string> unexpected;
};

/// Copies `tensors` into the module's parameters and buffers of the same names.
///
/// Everything is compared before the first value is changed; one error lists
/// all names that are missing, unexpected, or of another shape or dtype. Of
/// tied tensors one name is enough; where several are given they must be equal.
ACCEL_API IncompatibleKeys load_state_dict(
    torch::nn::Module& module,
    const StateDict& tensors,
    const LoadOptions& options = {});

} // namespace accel::checkpoint
