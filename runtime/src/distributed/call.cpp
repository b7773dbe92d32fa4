#include "distributed/call.h"

#include <ATen/ATen.h>

namespace accel::distributed {

int Call::index(std::string_view name) const {
  const auto& arguments = op_.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

Sizes Call::integers(size_t i) const {
  Sizes values;
  const auto& value = at(i);
  if (value.isIntList()) {
    for (const int64_t v : value.toIntVector()) {
      values.push_back(v);
    }
  } else if (value.isInt()) {
    values.push_back(value.toInt());
  }
  return values;
}

at::Tensor Call::local_as(const at::Tensor& tensor, const Placement& to) const {
  Part* p = part(tensor);
  if (p == nullptr) {
    return to.is_replicate() ? tensor
                             : redistribute_local(
                                   axis_, tensor, Replicate(), to,
                                   tensor.sizes(), name().c_str());
  }
  if (p->placement == to) {
    return p->local;
  }
  return redistribute_local(
      axis_, p->local, p->placement, to, p->sizes, name().c_str());
}

void Call::finish(std::initializer_list<c10::IValue> results) {
  stack_.resize(base_);
  stack_.insert(stack_.end(), results.begin(), results.end());
}

void Call::place_result(
    size_t k,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef like) {
  auto& value = result(k);
  if (!placement.is_replicate() && value.isTensor() &&
      value.toTensor().defined()) {
    at::Tensor local = std::move(value).toTensor();
    value = info_.is_view
        ? make_local_view(axis_, local, placement, sizes)
        : make_tensor(axis_, std::move(local), placement, sizes, like);
  }
}

void Call::place_result(size_t k, const Placement& placement, int64_t n) {
  auto& value = result(k);
  if (value.isTensor()) {
    value = placed(value.toTensor(), placement, n);
  }
}

at::Tensor Call::placed(
    const at::Tensor& local,
    const Placement& placement,
    int64_t n) const {
  if (!local.defined() || placement.is_replicate()) {
    return local;
  }
  Sizes sizes(local.sizes().begin(), local.sizes().end());
  if (placement.is_shard()) {
    sizes[placement.dim()] = n;
  }
  return info_.is_view ? make_local_view(axis_, local, placement, sizes)
                       : make_tensor(axis_, local, placement, sizes);
}

} // namespace accel::distributed
