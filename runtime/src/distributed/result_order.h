#pragma once

#include "distributed/part.h"

#include <ATen/core/stack.h>

#include <string>

// How results of operators lie in memory where LibTorch itself cannot be asked: these
// have no kernel for tensors without memory, or the CPU's gives another order.

namespace accel::distributed {

/// The strides of `[samples, heads, positions]` or `[samples, heads, positions, features]`
/// where memory has positions outside of heads: results of the CPU's fused attention.
Sizes positions_outside(c10::IntArrayRef sizes);

/// The strides of result `k` of these sizes on the CPU; empty where the operator is not
/// in the table.
/// `arguments`: the program's, with the whole tensors' sizes and strides.
Sizes known_strides(
    const std::string& name,
    size_t k,
    const std::vector<c10::IValue>& arguments,
    c10::IntArrayRef sizes);

} // namespace accel::distributed
