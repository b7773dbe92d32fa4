#include "default_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace zoo {
namespace {

thread_local std::optional<c10::Device> default_device;

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() || value.isTensorList() ||
      value.isOptionalTensorList();
}

bool takes_device(const c10::Argument& argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::DeviceObjType;
}

/// Of all operators: those that take no tensor and were told no device take the
/// default one.
void make_there(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const NoDefaultDevice inside;
  const auto& arguments = op.schema().arguments();
  const size_t begin = stack->size() - arguments.size();
  const at::Tensor* first = nullptr;
  bool has_tensors = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = (*stack)[begin + i];
    has_tensors = has_tensors || is_tensor(value);
    if (i == 0 && value.isTensor()) {
      first = &value.toTensor();
    }
  }
  // torch::tensor({1, 2}) is made on the host and then sent to where it was told.
  const bool literal = first != nullptr && first->defined() &&
      first->is_cpu() && op.schema().name() == "aten::to" &&
      op.schema().overload_name() == "dtype_layout";
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& value = (*stack)[begin + i];
    if (takes_device(arguments[i]) &&
        (literal ? value.isNone() || value.toDevice().is_cpu()
                 : !has_tensors && value.isNone())) {
      value = *default_device;
    }
  }
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&make_there>());
}

} // namespace

DefaultDevice::DefaultDevice(std::optional<c10::Device> device) {
  if (device) {
    default_device = device;
    on_.emplace(kDefaultDeviceKey);
  }
}

DefaultDevice::~DefaultDevice() {
  default_device.reset();
}

} // namespace zoo
