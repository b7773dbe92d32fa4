#include "distributed/call.h"

#include "distributed/memory_order.h"
#include "distributed/result_order.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace accel::distributed {
namespace {

/// Other layouts than strided ones have no order.
bool is_unordered(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
      !has_usual_strides(tensor);
}

/// Whether a dimension of one entry has a stride that is not what lies within it.
bool is_irregular(const at::Tensor& tensor) {
  if (!is_unordered(tensor)) {
    return false;
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  for (size_t one = 0; one < sizes.size(); ++one) {
    bool found = sizes[one] != 1 || strides[one] == 1;
    for (size_t d = 0; d < sizes.size() && !found; ++d) {
      found = sizes[d] != 1 && strides[one] == sizes[d] * strides[d];
    }
    if (!found) {
      return true;
    }
  }
  return false;
}

/// Of a tensor or of one in a list.
template <typename Is>
bool any_of(const c10::IValue& value, const Is& is) {
  if (value.isTensor()) {
    return is(value.toTensor());
  }
  if (value.isTensorList()) {
    const auto list = value.toTensorList();
    return std::any_of(list.begin(), list.end(), [&](const at::Tensor& tensor) {
      return is(tensor);
    });
  }
  if (value.isOptionalTensorList()) {
    const auto list = value.toOptionalTensorList();
    return std::any_of(
        list.begin(), list.end(),
        [&](const std::optional<at::Tensor>& tensor) {
          return tensor && is(*tensor);
        });
  }
  return false;
}

} // namespace

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
    for (const auto& v : value.toListRef()) {
      values.push_back(v.toInt());
    }
  } else if (value.isInt()) {
    values.push_back(value.toInt());
  }
  return values;
}

at::Tensor Call::local_as(const at::Tensor& tensor, const Placement& to) const {
  Part* p = part(tensor);
  if (p == nullptr) {
    if (to.is_replicate()) {
      return tensor;
    }
    // Rows of it lie in the order of their own dimensions, and what is distributed
    // along a further axis may be gathered there.
    moved_ = true;
    return redistribute_local(
        axis_, tensor, Replicate(), to, tensor.sizes(), name().c_str());
  }
  if (p->placement == to) {
    return p->local;
  }
  moved_ = true;
  const Part* root = root_of(p);
  if (to.is_replicate() && root->unit != nullptr && !is_written(tensor)) {
    return read_units_.emplace_back(whole_of_unit(p, name().c_str()));
  }
  if (C10_UNLIKELY(to.is_replicate() && root->keeps_whole)) {
    return kept_whole(p, name().c_str());
  }
  if (to.is_replicate() && !info_.is_view && is_worth_settling(*p) &&
      !is_written(tensor)) {
    settle(p, name().c_str());
    return p->local;
  }
  // In the order of memory that the whole tensor has: results follow it.
  return in_order_of(
      redistribute_local(
          axis_, p->local, p->placement, to, p->sizes, name().c_str()),
      tensor);
}

bool Call::is_written(const at::Tensor& tensor) const {
  for (const auto i : info_.writes) {
    const auto& value = at(i);
    if (value.isTensor() && value.toTensor().is_same(tensor)) {
      return true;
    }
    if (value.isTensorList()) {
      for (const at::Tensor& one : value.toTensorVector()) {
        if (one.is_same(tensor)) {
          return true;
        }
      }
    }
  }
  return false;
}

void Call::copy_out_of_units() {
  const auto in_unit = [&](const at::Tensor& tensor) {
    return std::any_of(
        read_units_.begin(), read_units_.end(), [&](const at::Tensor& read) {
          return tensor.has_storage() && tensor.is_alias_of(leaf_of(read));
        });
  };
  const auto copied = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return tensor;
    }
    Part* part = part_of(tensor);
    if (part == nullptr) {
      return in_unit(tensor) ? tensor.clone() : tensor;
    }
    while (Part* inner = part_of(part->local)) {
      part = inner;
    }
    if (in_unit(part->local)) {
      part->local = part->local.clone();
    }
    return tensor;
  };
  for (size_t k = 0; k < info_.results; ++k) {
    auto& value = result(k);
    if (value.isTensor()) {
      value = copied(value.toTensor());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& tensor : list) {
        tensor = copied(tensor);
      }
      value = std::move(list);
    }
  }
}

void Call::finish(std::initializer_list<c10::IValue> results) {
  moved_ = true; // their order is that of the rule's own operators
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
        : made(k, local, placement, sizes, like);
  }
}

void Call::place_result(size_t k, const Placement& placement, int64_t n) {
  auto& value = result(k);
  if (value.isTensor()) {
    const at::Tensor local = value.toTensor();
    if (!local.defined() || placement.is_replicate() || info_.is_view) {
      value = placed(local, placement, n);
      return;
    }
    Sizes sizes(local.sizes().begin(), local.sizes().end());
    if (placement.is_shard()) {
      sizes[placement.dim()] = n;
    }
    value = made(k, local, placement, sizes, {});
  }
}

void Call::keep_unordered() {
  if (info_.is_view || info_.is_in_place) {
    return;
  }
  for (const auto i : info_.tensors) {
    if (any_of(at(i), is_unordered)) {
      unordered_.assign(stack_.begin() + base_, stack_.end());
      const auto hides_order = [this](const at::Tensor& tensor) {
        const Part* p = part(tensor);
        return is_irregular(tensor) ||
            (p != nullptr &&
             has_single_rows(axis_, p->placement, tensor.sizes()));
      };
      irregular_ = std::any_of(
          unordered_.begin(), unordered_.end(), [&](const c10::IValue& value) {
            return any_of(value, hides_order);
          });
      return;
    }
  }
}

at::Tensor Call::made(
    size_t k,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef like) const {
  const bool single = has_single_rows(axis_, placement, sizes);
  if (!unordered_.empty() && (moved_ || single || irregular_)) {
    auto strides = local.is_cpu() ? known_strides(name(), k, unordered_, sizes) : Sizes();
    if (strides.empty()) {
      strides = plain_strides(k);
    }
    if (strides.size() != sizes.size()) {
      strides.assign(like.begin(), like.end());
    }
    if (strides.empty() && single) {
      strides = channels_last_strides(local, placement.dim(), sizes);
    }
    return make_tensor(axis_, local, placement, sizes, strides, /*exact=*/true);
  }
  return make_tensor(axis_, local, placement, sizes, like);
}

Sizes Call::channels_last_strides(
    const at::Tensor& local,
    int64_t cut,
    c10::IntArrayRef sizes) const {
  if (sizes.size() != 4 && sizes.size() != 5) {
    return {};
  }
  const auto format = sizes.size() == 4 ? at::MemoryFormat::ChannelsLast
                                        : at::MemoryFormat::ChannelsLast3d;
  const bool asked = std::any_of(
      unordered_.begin(), unordered_.end(), [&](const c10::IValue& value) {
        return value.isTensor() && value.toTensor().defined() &&
            value.toTensor().dim() == local.dim() &&
            value.toTensor().suggest_memory_format() == format;
      });
  if (!asked) {
    return {};
  }
  const auto strides = channels_last(sizes);
  auto found = order_beside(cut, local.sizes(), local.strides());
  auto wanted = order_beside(cut, sizes, strides);
  return found == wanted ? strides : Sizes();
}

Sizes Call::plain_strides(size_t k) const {
  static const auto without_memory = [](const at::Tensor& tensor) {
    return tensor.defined()
        ? at::empty_strided(
              tensor.sizes(), tensor.strides(),
              tensor.options().device(at::kMeta))
        : tensor;
  };
  // A generator must not be asked for numbers that nobody gets; some operators
  // know memory only.
  if (info_.draws ||
      (!op_.hasKernelForDispatchKey(c10::DispatchKey::Meta) &&
       !op_.hasKernelForDispatchKey(
           c10::DispatchKey::CompositeExplicitAutograd) &&
       !op_.hasKernelForDispatchKey(
           c10::DispatchKey::CompositeExplicitAutogradNonFunctional))) {
    return {};
  }
  torch::jit::Stack stack;
  for (const auto& value : unordered_) {
    if (value.isTensor()) {
      stack.emplace_back(without_memory(value.toTensor()));
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      std::transform(list.begin(), list.end(), list.begin(), without_memory);
      stack.emplace_back(std::move(list));
    } else if (value.isOptionalTensorList()) {
      return {}; // indices: what they give depends on their values
    } else {
      stack.push_back(value);
    }
  }
  try {
    op_.callBoxed(stack);
  } catch (const c10::Error&) {
    return {}; // made of operators that do
  }
  const auto& value = stack[stack.size() - info_.results + k];
  if (!value.isTensor() || !value.toTensor().defined()) {
    return {};
  }
  const auto strides = value.toTensor().strides();
  return {strides.begin(), strides.end()};
}

at::Tensor Call::placed(
    const at::Tensor& local,
    const Placement& placement,
    int64_t n,
    c10::IntArrayRef like) const {
  if (!local.defined() || placement.is_replicate()) {
    return local;
  }
  Sizes sizes(local.sizes().begin(), local.sizes().end());
  if (placement.is_shard()) {
    sizes[placement.dim()] = n;
  }
  return info_.is_view ? make_local_view(axis_, local, placement, sizes)
                       : make_tensor(
                             axis_, local, placement, sizes, like,
                             /*exact=*/!like.empty());
}

} // namespace accel::distributed
