#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace accel::distributed {

/// Calls `f` with every tensor of an argument or a result: one, or a list of them. For
/// what a list leaves out with an undefined one.
template <typename F>
void each_tensor(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isTensorList()) {
    const auto list = value.toTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      f(list.get(i));
    }
  } else if (value.isOptionalTensorList()) {
    const auto list = value.toOptionalTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      const std::optional<at::Tensor> tensor = list.get(i);
      f(tensor.value_or(at::Tensor()));
    }
  }
}

} // namespace accel::distributed
