#include "gradients/parameters.h"

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

void Parameters::hold() {
  for (const auto& parameter : parameters_) {
    auto& grad = parameter->tensor.mutable_grad();
    if (grad.defined()) {
      parameter->held = std::exchange(grad, at::Tensor());
    }
  }
}

void Parameters::release() {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    if (!parameter->held.defined()) {
      continue;
    }
    auto held = std::exchange(parameter->held, at::Tensor());
    auto& grad = parameter->tensor.mutable_grad();
    if (grad.defined()) {
      // A dense one cannot be added to a sparse one in place.
      held = held.is_sparse() && !grad.is_sparse() ? grad.add(held)
                                                   : held.add_(grad);
    }
    grad = std::move(held);
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
    if (!parameter->sharded) {
      parameter->before =
          std::exchange(parameter->tensor.mutable_grad(), at::Tensor());
    }
  }
}

void Parameters::bring_back() {
  for (const auto& parameter : parameters_) {
    auto before = std::exchange(parameter->before, at::Tensor());
    if (!parameter->fired && !parameter->sharded) {
      parameter->tensor.mutable_grad() = std::move(before);
    }
  }
}

} // namespace accel::detail
