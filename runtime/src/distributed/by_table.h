#pragma once

#include "distributed/call.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

// What kernels with a signature of their own call for the cases that they do not do.

namespace accel::distributed {

template <typename Op>
const c10::OperatorHandle& handle_of() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  return op;
}

/// The operator as the table of rules does it.
template <typename Op, typename... Args>
at::Tensor by_table(const Args&... args) {
  const auto& op = handle_of<Op>();
  torch::jit::Stack stack;
  stack.reserve(sizeof...(args));
  torch::jit::push(stack, args...);
  handle(op, &stack);
  return std::move(stack.back()).toTensor();
}

inline bool has_part(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has(kKey);
}

} // namespace accel::distributed
