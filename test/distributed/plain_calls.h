#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

// A call on plain tensors, which is what the same call on distributed ones is
// compared with.

namespace accel::distributed::test {

/// "aten::add_.Tensor".
std::string full_name(const c10::OperatorName& name);

/// An expanded tensor stays one.
at::Tensor copy_of(const at::Tensor& tensor);

/// The results of the call on copies of the arguments; throws what the operator
/// throws.
torch::jit::Stack results_of(
    const c10::OperatorHandle& op,
    const torch::jit::Stack& arguments);

} // namespace accel::distributed::test
