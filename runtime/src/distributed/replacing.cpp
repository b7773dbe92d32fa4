#include "distributed/replacing.h"

#include "distributed/by_table.h"
#include "distributed/collectives.h"
#include "distributed/recompute.h"

#include <ATen/ATen.h>
#include <ATen/Operators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include <string>

namespace accel::distributed {
namespace {

bool is_only_one_of_memory(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().use_count() == 1 &&
      tensor.storage().resizable();
}

/// Whether nobody has `self` but the variables that are written to here, nor its memory.
bool is_only_one(const at::Tensor& self, size_t variables = 1) {
  return self.use_count() <= variables &&
      (has_part(self) || (is_only_one_of_memory(self) && !self.is_view()));
}

/// The backward of one of LibTorch's own operators, or the engine between them.
bool is_in_own_backward() {
  if (!in_backward()) {
    return false;
  }
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) {
    return true;
  }
  const std::string name = node->name(); // "MulBackward0"
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  static const std::string kind = "Backward";
  return digits < name.size() && digits >= kind.size() &&
      name.compare(digits - kind.size(), kind.size(), kind) == 0 &&
      name.find("::") == std::string::npos;
}

/// Whether `self`, to some rows of which those of `rows` are added, may become the
/// result: where a part of a sum is all that a process can say of it. `cut`: whether
/// the rows are distributed, or what names them.
bool may_become_result(
    const at::Tensor& self,
    const at::Tensor& rows,
    bool cut,
    size_t variables = 1) {
  // What a rule writes to on a further axis of the mesh is what its tensor holds.
  if (!cut || InsideGuard::lives() || self.dtype() != rows.dtype() ||
      !is_only_one(self, variables)) {
    return false;
  }
  if (Part* part = part_of(self)) {
    // `to.detach()` has the same part, and this copy is one more.
    const bool is_shared = PartPtr::reclaim_copy(part).use_count() != 2;
    if (!part->placement.is_shard() || part->whole.defined() ||
        part->kept.defined() || is_shared || root_of(part) != part ||
        !is_plain(part->local) || !is_only_one_of_memory(part->local)) {
      return false;
    }
  }
  return in_backward() ? is_in_own_backward()
                       : at::GradMode::is_enabled() && rows.requires_grad();
}

bool any_part(
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& values) {
  bool has = has_part(values);
  for (const std::optional<at::Tensor>& index : indices) {
    has = has || (index && index->defined() && has_part(*index));
  }
  return has;
}

at::Tensor& index_put_(
    at::Tensor& self,
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& values,
    bool accumulate) {
  if (accumulate && may_become_result(self, values, any_part(indices, values))) {
    self = by_table<at::_ops::index_put>(self, indices, values, accumulate);
  } else {
    by_table<at::_ops::index_put_>(self, indices, values, accumulate);
  }
  return self;
}

/// That has its tensor of zeros in a list beside, to see of what class it is.
bool is_in_backward_of_index() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && node->name() == "IndexBackward0";
}

at::Tensor& index_put_impl_(
    at::Tensor& self,
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& values,
    bool accumulate,
    bool unsafe) {
  if (accumulate &&
      may_become_result(
          self, values, any_part(indices, values), is_in_backward_of_index() ? 2 : 1)) {
    self = by_table<at::_ops::index_put>(self, indices, values, accumulate);
  } else {
    by_table<at::_ops::_index_put_impl_>(
        self, indices, values, accumulate, unsafe);
  }
  return self;
}

at::Tensor& index_add_(
    at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    const at::Scalar& alpha) {
  if (may_become_result(self, source, has_part(index) || has_part(source))) {
    self = by_table<at::_ops::index_add>(self, dim, index, source, alpha);
  } else {
    by_table<at::_ops::index_add_>(self, dim, index, source, alpha);
  }
  return self;
}

at::Tensor& scatter_add_(
    at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source) {
  if (may_become_result(self, source, has_part(index) || has_part(source))) {
    self = by_table<at::_ops::scatter_add>(self, dim, index, source);
  } else {
    by_table<at::_ops::scatter_add_>(self, dim, index, source);
  }
  return self;
}

} // namespace

bool may_become_sum(const at::Tensor& self, const at::Tensor& other) {
  if (has_part(self) == has_part(other) || self.dtype() != other.dtype() ||
      self.sizes() != other.sizes() || !is_only_one(self)) {
    return false;
  }
  return at::GradMode::is_enabled()
      ? !has_part(self) && other.requires_grad() && !in_backward()
      : is_in_own_backward();
}

void install_replacing(torch::Library& library) {
  library.impl("index_put_", TORCH_FN(index_put_));
  library.impl("_index_put_impl_", TORCH_FN(index_put_impl_));
  library.impl("index_add_", TORCH_FN(index_add_));
  library.impl("scatter_add_", TORCH_FN(scatter_add_));
}

} // namespace accel::distributed
