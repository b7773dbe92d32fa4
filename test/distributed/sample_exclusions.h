#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

// What no sample is made of, and why.

namespace accel::distributed::test {

/// Why there can be no sample here of an operator that has a rule: "cuDNN" for
/// the kernels of that library. Null for all others.
const char* why_without_sample(const std::string& name);

/// Whether a sample may be tried on the device of this program: CUDA's own
/// operators have samples there.
bool may_have_sample(const std::string& name);

/// Why a call on a device has no result that could be compared; null for all others.
const char* why_not_on_device(
    const c10::OperatorHandle& op,
    const torch::jit::Stack& arguments);

} // namespace accel::distributed::test
