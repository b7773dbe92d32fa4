#include "distributed/kernels.h"

#include "distributed/call.h"
#include "distributed/watch.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>

namespace accel::distributed {
namespace {

/// The operator as the table of rules does it.
template <typename Op, typename... Args>
at::Tensor by_table(const Args&... args) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  torch::jit::Stack stack;
  stack.reserve(sizeof...(args));
  torch::jit::push(stack, args...);
  handle(op, &stack);
  return std::move(stack.back()).toTensor();
}

/// The part of a tensor that a kernel here may work on: cut, or a part of a
/// sum, along one axis, while nobody looks at operators, in the mesh's own
/// thread. Null for every other tensor.
Part* part_for_kernel(const at::Tensor& tensor) {
  static const Watch& watched = watch();
  Part* part = part_of(tensor);
  if (part == nullptr || watched.any ||
      !(part->placement.is_shard() || part->placement.is_sum()) ||
      part->local.unsafeGetTensorImpl()->key_set().has(kKey) ||
      !part->axis->is_own_thread()) {
    return nullptr;
  }
  return part;
}

/// Parts of a sum times infinity are no parts of the sum times infinity.
bool is_finite(const at::Scalar& number) {
  return !number.isFloatingPoint() || std::isfinite(number.toDouble());
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
      !tensor.unsafeGetTensorImpl()->key_set().has(kKey);
}

/// A result; `like` is what gives the plain one its order in memory.
at::Tensor placed(
    const Part& part,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    const at::Tensor& like) {
  return like.is_contiguous() && local.is_contiguous()
      ? make_contiguous(*part.axis, std::move(local), placement, sizes)
      : make_tensor(
            *part.axis, std::move(local), placement, sizes, like.strides());
}

/// The same where the order is that of the dimensions.
at::Tensor placed(
    const Part& part,
    at::Tensor local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  return local.is_contiguous()
      ? make_contiguous(*part.axis, std::move(local), placement, sizes)
      : make_tensor(*part.axis, std::move(local), placement, sizes);
}

// ---- Pointwise.

/// Whether the result of a pointwise operator has `self`'s sizes, and each
/// process has all of `other` that its part of `self` meets. If so, `local` is
/// that.
bool meets(
    const at::Tensor& self,
    const Part& part,
    const at::Tensor& other,
    const at::Tensor*& local) {
  if (const Part* its = part_of(other)) {
    local = &its->local;
    return its->axis == part.axis && its->placement == part.placement &&
        other.sizes() == self.sizes() && is_plain(its->local);
  }
  local = &other;
  if (!part.placement.is_shard() || !is_plain(other)) {
    return false;
  }
  const int64_t offset = self.dim() - other.dim();
  if (offset < 0) {
    return false;
  }
  for (int64_t d = 0; d < other.dim(); ++d) {
    const bool repeated = other.size(d) == 1;
    if (!repeated &&
        (other.size(d) != self.size(offset + d) ||
         part.placement.is_shard(offset + d))) {
      return false;
    }
  }
  return true;
}

at::Tensor relu(const at::Tensor& self) {
  const Part* part = part_for_kernel(self);
  if (part == nullptr || !part->placement.is_shard()) {
    return by_table<at::_ops::relu>(self);
  }
  const InsideGuard inside;
  return placed(
      *part, at::relu(part->local), part->placement, self.sizes(), self);
}

at::Tensor threshold_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Scalar& threshold) {
  const Part* part = part_for_kernel(grad);
  const at::Tensor* other = nullptr;
  if (part == nullptr || !part->placement.is_shard() ||
      !meets(grad, *part, self, other)) {
    return by_table<at::_ops::threshold_backward>(grad, self, threshold);
  }
  const InsideGuard inside;
  return placed(
      *part, at::threshold_backward(part->local, *other, threshold),
      part->placement, grad.sizes(), grad);
}

at::Tensor add(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha) {
  const Part* part = part_for_kernel(self);
  const at::Tensor* local = nullptr;
  if (part == nullptr || !meets(self, *part, other, local) ||
      (part->placement.is_sum() && !is_finite(alpha))) {
    return by_table<at::_ops::add_Tensor>(self, other, alpha);
  }
  const InsideGuard inside;
  auto sum = at::add(part->local, *local, alpha);
  return part->placement.is_shard()
      ? placed(*part, std::move(sum), part->placement, self.sizes(), self)
      : placed(*part, std::move(sum), part->placement, self.sizes());
}

at::Tensor& add_(
    at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha) {
  Part* part = part_for_kernel(self);
  const at::Tensor* local = nullptr;
  // Views of the gathered value have to see the write.
  if (part == nullptr || root_of(part)->whole.defined() ||
      !meets(self, *part, other, local) ||
      (part->placement.is_sum() && !is_finite(alpha))) {
    by_table<at::_ops::add__Tensor>(self, other, alpha);
    return self;
  }
  const InsideGuard inside;
  part->local.add_(*local, alpha);
  return self;
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  const Part* part = part_for_kernel(self);
  const at::Tensor* local = nullptr;
  if (part == nullptr || !part->placement.is_shard() ||
      !meets(self, *part, other, local)) {
    return by_table<at::_ops::mul_Tensor>(self, other);
  }
  const InsideGuard inside;
  return placed(
      *part, at::mul(part->local, *local), part->placement, self.sizes(), self);
}

// ---- Products.

/// Rows of the left factor times all of the right one; or columns of the left
/// one times the rows of the right one that belong to them, a part of a sum.
at::Tensor mm(const at::Tensor& self, const at::Tensor& other) {
  const Part* part = part_for_kernel(self);
  if (part != nullptr && part->placement.is_shard()) {
    const Sizes sizes{self.size(0), other.size(1)};
    if (part->placement.dim() == 0 && is_plain(other)) {
      const InsideGuard inside;
      return placed(*part, at::mm(part->local, other), part->placement, sizes);
    }
    const Part* its = part_for_kernel(other);
    if (part->placement.dim() == 1 && its != nullptr &&
        its->axis == part->axis &&
        its->placement == part->placement.with_dim(0)) {
      const InsideGuard inside;
      return placed(*part, at::mm(part->local, its->local), Partial(), sizes);
    }
  }
  return by_table<at::_ops::mm>(self, other);
}

at::Tensor addmm(
    const at::Tensor& self,
    const at::Tensor& left,
    const at::Tensor& right,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  const Part* part = part_for_kernel(left);
  if (part == nullptr || !part->placement.is_shard(0) || !is_plain(right) ||
      !is_plain(self) || self.dim() > 1) {
    return by_table<at::_ops::addmm>(self, left, right, beta, alpha);
  }
  const InsideGuard inside;
  return placed(
      *part, at::addmm(self, part->local, right, beta, alpha),
      part->placement, Sizes{left.size(0), right.size(1)});
}

// ---- Sums.

at::Tensor sum(
    const at::Tensor& self,
    at::OptionalIntArrayRef dims,
    bool keepdim,
    std::optional<at::ScalarType> dtype) {
  const Part* part = part_for_kernel(self);
  // Parts of a sum that another dtype rounds are not added later.
  if (part == nullptr || !dims.has_value() || dims->size() != 1 ||
      (dtype.has_value() && *dtype != self.scalar_type())) {
    return by_table<at::_ops::sum_dim_IntList>(self, dims, keepdim, dtype);
  }
  const int64_t dim = dims->front() < 0 ? dims->front() + self.dim() : dims->front();
  if (dim < 0 || dim >= self.dim()) {
    return by_table<at::_ops::sum_dim_IntList>(self, dims, keepdim, dtype);
  }
  Sizes sizes(self.sizes().begin(), self.sizes().end());
  Placement place = part->placement;
  if (keepdim) {
    sizes[dim] = 1;
  } else {
    sizes.erase(sizes.begin() + dim);
  }
  if (place.is_shard(dim)) {
    place = Partial();
  } else if (place.is_shard() && place.dim() > dim && !keepdim) {
    place = place.with_dim(place.dim() - 1);
  }
  const InsideGuard inside;
  return placed(*part, at::sum(part->local, dim, keepdim, dtype), place, sizes);
}

// ---- Views.

/// A view of `self`, of which `local` is a view of the part, made by an operator
/// that has no arguments but this list of integers, or none.
template <typename Op>
at::Tensor viewed(
    const at::Tensor& self,
    Part* part,
    const at::Tensor& local,
    const Placement& placement,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<Sizes> integers = {}) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  auto view = c10::make_intrusive<ViewOf>(PartPtr::reclaim_copy(part), op);
  view->integers = std::move(integers);
  return make_view(
      *part->axis, local, placement, sizes, strides, self.storage_offset(),
      std::move(view));
}

at::Tensor detach(const at::Tensor& self) {
  return part_for_kernel(self) != nullptr ? share_part(self)
                                          : by_table<at::_ops::detach>(self);
}

at::Tensor t(const at::Tensor& self) {
  Part* part = part_for_kernel(self);
  if (part == nullptr || self.dim() != 2) {
    return by_table<at::_ops::t>(self);
  }
  const auto& place = part->placement;
  const InsideGuard inside;
  return viewed<at::_ops::t>(
      self, part, at::t(part->local),
      place.is_shard() ? place.with_dim(1 - place.dim()) : place,
      Sizes{self.size(1), self.size(0)}, Sizes{self.stride(1), self.stride(0)});
}

/// Where the dimensions up to the one that is cut stay as they are.
at::Tensor view(const at::Tensor& self, c10::IntArrayRef asked) {
  Part* part = part_for_kernel(self);
  if (part == nullptr || !self.is_contiguous() || !part->local.is_contiguous()) {
    return by_table<at::_ops::view>(self, asked);
  }
  const auto& place = part->placement;
  const int64_t leading = place.is_shard() ? place.dim() + 1 : 0;
  Sizes sizes(asked.begin(), asked.end());
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    const auto inferred = at::infer_size(asked, self.numel());
    sizes.assign(inferred.begin(), inferred.end());
  }
  if (static_cast<int64_t>(sizes.size()) < leading ||
      !std::equal(sizes.begin(), sizes.begin() + leading, self.sizes().begin())) {
    return by_table<at::_ops::view>(self, asked);
  }
  Sizes strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  Sizes own = sizes;
  if (place.is_shard()) {
    own[place.dim()] = part->local.size(place.dim());
  }
  const InsideGuard inside;
  return viewed<at::_ops::view>(
      self, part, part->local.view(own), place, sizes, strides, sizes);
}

} // namespace

void install_kernels(torch::Library& library) {
  library.impl("relu", TORCH_FN(relu));
  library.impl("threshold_backward", TORCH_FN(threshold_backward));
  library.impl("add.Tensor", TORCH_FN(add));
  library.impl("add_.Tensor", TORCH_FN(add_));
  library.impl("mul.Tensor", TORCH_FN(mul));
  library.impl("mm", TORCH_FN(mm));
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("sum.dim_IntList", TORCH_FN(sum));
  library.impl("detach", TORCH_FN(detach));
  library.impl("t", TORCH_FN(t));
  library.impl("view", TORCH_FN(view));
}

} // namespace accel::distributed
