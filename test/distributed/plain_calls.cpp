#include "plain_calls.h"

#include "device.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace accel::distributed::test {

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense()
      ? tensor.clone()
      : tensor.detach();
}

torch::jit::Stack results_of(
    const c10::OperatorHandle& op,
    const torch::jit::Stack& arguments) {
  const at::NoGradGuard no_grad;
  // A boxed call that returns several references needs somebody else who holds
  // what they refer to.
  const auto held = changed(arguments, copy_of);
  auto stack = held;
  op.callBoxed(stack);
  // Results that cannot be read (the negative view of a boolean tensor).
  changed(stack, copy_of);
  return stack;
}

} // namespace accel::distributed::test
