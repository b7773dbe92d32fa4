#include "gradients/parameters.h"

#include "core/tensor_version.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace accel::detail {

bool Parameters::add(const at::Tensor& tensor, std::string name) {
  if (known(tensor)) {
    return false;
  }
  auto parameter = std::make_unique<Parameter>();
  parameter->tensor = tensor;
  parameter->name = std::move(name);
  parameter->sharded = accel::distributed::is_distributed(tensor);
  index_.emplace(tensor.unsafeGetTensorImpl(), parameter.get());
  parameters_.push_back(std::move(parameter));
  return true;
}

bool Parameters::known(const at::Tensor& tensor) const {
  return index_.count(tensor.unsafeGetTensorImpl()) != 0;
}

Parameter* Parameters::find(const at::Tensor& tensor) {
  const auto found = index_.find(tensor.unsafeGetTensorImpl());
  return found == index_.end() ? nullptr : found->second;
}

std::vector<std::unique_ptr<Parameter>> Parameters::prune() {
  const auto first_unused = std::stable_partition(
      parameters_.begin(), parameters_.end(), [](const auto& parameter) {
        return parameter->tensor.use_count() > 1;
      });
  std::vector<std::unique_ptr<Parameter>> unused(
      std::make_move_iterator(first_unused),
      std::make_move_iterator(parameters_.end()));
  parameters_.erase(first_unused, parameters_.end());
  for (const auto& parameter : unused) {
    index_.erase(parameter->tensor.unsafeGetTensorImpl());
  }
  return unused;
}

void Parameters::release() {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    auto& grad = parameter->tensor.mutable_grad();
    if (parameter->held.defined()) {
      auto held = std::exchange(parameter->held, at::Tensor());
      if (grad.defined()) {
        // A dense one cannot be added to a sparse one in place.
        held = held.is_sparse() && !grad.is_sparse() ? grad.add(held)
                                                     : held.add_(grad);
      }
      grad = std::move(held);
      parameter->released = true;
    }
    parameter->found.reset();
    if (grad.defined()) {
      parameter->found.emplace(grad.getIntrusivePtr());
      parameter->found_version = version_of(grad);
    }
  }
}

bool Parameters::reached(const Parameter& parameter, bool hooks) {
  if (hooks) {
    return parameter.fired;
  }
  const auto& grad = parameter.tensor.grad();
  if (!grad.defined() || !parameter.found) {
    return grad.defined();
  }
  return parameter.found->_unsafe_get_target() != grad.unsafeGetTensorImpl() ||
      version_of(grad) != parameter.found_version;
}

void Parameters::hold(bool hooks) {
  for (const auto& parameter : parameters_) {
    auto& grad = parameter->tensor.mutable_grad();
    const bool of_window =
        std::exchange(parameter->released, false) || reached(*parameter, hooks);
    if (grad.defined() && of_window) {
      parameter->held = std::exchange(grad, at::Tensor());
    }
  }
}

void Parameters::keep_unreached(bool hooks) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    if (std::exchange(parameter->released, false)) {
      const auto& grad = parameter->tensor.grad();
      parameter->kept = grad.defined() && !reached(*parameter, hooks)
          ? grad.clone()
          : at::Tensor();
    }
  }
}

bool is_zeroed(const at::Tensor& grad) {
  return !grad.defined() ||
      (grad.layout() == at::kStrided && !at::any(grad.ne(0)).item<bool>());
}

void Parameters::bring_back_kept() {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    if (!parameter->kept.defined()) {
      continue;
    }
    auto& grad = parameter->tensor.mutable_grad();
    if (is_zeroed(grad)) {
      grad = parameter->kept.clone();
      parameter->used = true; // It is part of the next average.
    }
    parameter->released = true;
  }
}

void Parameters::forget_kept() {
  for (const auto& parameter : parameters_) {
    parameter->kept.reset();
  }
}

bool Parameters::holding() const {
  return std::any_of(
      parameters_.begin(), parameters_.end(), [](const auto& parameter) {
        return parameter->held.defined();
      });
}

void Parameters::set_aside() {
  for (const auto& parameter : parameters_) {
    if (parameter->sharded) {
      continue;
    }
    auto& grad = parameter->tensor.mutable_grad();
    parameter->before = std::exchange(grad, at::Tensor());
    if (parameter->before.defined() && !parameter->ever_fired &&
        parameter->before.layout() == at::kStrided) {
      grad = at::zeros_like(parameter->before);
      parameter->zeros_version = version_of(grad);
    }
  }
}

void Parameters::bring_back(bool ghost) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    auto before = std::exchange(parameter->before, at::Tensor());
    if (parameter->fired || parameter->sharded) {
      continue;
    }
    auto& grad = parameter->tensor.mutable_grad();
    auto added = std::exchange(grad, std::move(before));
    // The zeros of set_aside have not been written to.
    const bool untouched =
        added.defined() && grad.defined() && !parameter->ever_fired &&
        version_of(added) == parameter->zeros_version;
    if (!added.defined() || untouched || ghost) {
      continue;
    }
    grad = !grad.defined()  ? std::move(added)
        : added.is_sparse() ? added.add(grad)
                            : grad.add_(added);
  }
}

} // namespace accel::detail
