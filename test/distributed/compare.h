#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// A number, size, dtype or stride that is not the plain program's.
struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How near floating-point values must be.
struct Tolerance {
  double relative = 1e-9;
  double absolute = 1e-11;
  /// Values of fresh memory and the like: only sizes and dtypes are compared.
  bool only_shapes = false;
  /// Strides must be equal where the plain tensor is contiguous.
  bool strides = true;
};

/// All distributed tensors among the values by their whole ones, lists included.
/// Collective. Strides that were claimed are looked at first, see `differences`.
struct Snapshot {
  /// Whole, plain values; undefined tensors stay undefined.
  std::vector<at::Tensor> tensors;
  /// What the program saw of them before.
  std::vector<std::vector<int64_t>> sizes;
  std::vector<std::vector<int64_t>> strides;
  /// Numbers and the like, as text.
  std::vector<std::string> others;
};
Snapshot snapshot(const torch::jit::Stack& values);

/// Empty where both are the same, else what is not: "result 1: 3.5 instead of
/// 2.5 at [0, 4] …". Not collective.
std::string difference(
    const Snapshot& plain,
    const Snapshot& got,
    const Tolerance& tolerance);

} // namespace accel::distributed::test
