#include "distributed/kernels.h"

#include "distributed/call.h"
#include "distributed/watch.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

namespace accel::distributed {
namespace {

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

/// The keys that every tensor that is nothing but dense has, and those that do
/// not matter here.
const uint64_t kDense =
    c10::DispatchKeySet(c10::DispatchKey::Dense).raw_repr();
const uint64_t kWhatever = c10::full_backend_mask |
    c10::autograd_dispatch_keyset_with_ADInplaceOrView.raw_repr() |
    c10::autocast_dispatch_keyset.raw_repr();

/// A tensor that is nothing but dense: not distributed, not sparse, quantised,
/// conjugated, named … What is left of an operator's keys below `kKey` is right
/// for such tensors, so that the kernel can be called with these at once.
bool is_plain(const at::Tensor& tensor) {
  // The undefined tensor has no keys.
  return (tensor.unsafeGetTensorImpl()->key_set().raw_repr() & ~kWhatever) ==
      kDense;
}

/// The keys below `kKey` of an operator on plain tensors that was called on
/// distributed ones.
c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

/// The part of a tensor that a kernel here may work on: cut, or a part of a
/// sum, along one axis, while nobody looks at operators, in the mesh's own
/// thread. Null for every other tensor.
Part* part_for_kernel(const at::Tensor& tensor) {
  static const Watch& watched = watch();
  Part* part = part_of(tensor);
  if (part == nullptr || watched.any ||
      !(part->placement.is_shard() || part->placement.is_sum()) ||
      !is_plain(part->local) || !part->axis->is_own_thread()) {
    return nullptr;
  }
  return part;
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

at::Tensor relu(c10::DispatchKeySet keys, const at::Tensor& self) {
  const Part* part = part_for_kernel(self);
  if (part == nullptr || !part->placement.is_shard()) {
    return by_table<at::_ops::relu>(self);
  }
  const InsideGuard inside;
  return placed(
      *part, at::_ops::relu::redispatch(below(keys), part->local),
      part->placement, self.sizes(), self);
}

at::Tensor threshold_backward(
    c10::DispatchKeySet keys,
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
      *part,
      at::_ops::threshold_backward::redispatch(
          below(keys), part->local, *other, threshold),
      part->placement, grad.sizes(), grad);
}

at::Tensor add(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha) {
  const Part* part = part_for_kernel(self);
  const at::Tensor* local = nullptr;
  if (part == nullptr || !meets(self, *part, other, local)) {
    return by_table<at::_ops::add_Tensor>(self, other, alpha);
  }
  const InsideGuard inside;
  auto sum = at::_ops::add_Tensor::redispatch(
      below(keys), part->local, *local, alpha);
  return part->placement.is_shard()
      ? placed(*part, std::move(sum), part->placement, self.sizes(), self)
      : placed(*part, std::move(sum), part->placement, self.sizes());
}

at::Tensor& add_(
    c10::DispatchKeySet keys,
    at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha) {
  Part* part = part_for_kernel(self);
  const at::Tensor* local = nullptr;
  // Views of the gathered value have to see the write.
  if (part == nullptr || root_of(part)->whole.defined() ||
      !meets(self, *part, other, local)) {
    by_table<at::_ops::add__Tensor>(self, other, alpha);
    return self;
  }
  const InsideGuard inside;
  at::_ops::add__Tensor::redispatch(below(keys), part->local, *local, alpha);
  return self;
}

at::Tensor mul(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    const at::Tensor& other) {
  const Part* part = part_for_kernel(self);
  const at::Tensor* local = nullptr;
  if (part == nullptr || !part->placement.is_shard() ||
      !meets(self, *part, other, local)) {
    return by_table<at::_ops::mul_Tensor>(self, other);
  }
  const InsideGuard inside;
  return placed(
      *part, at::_ops::mul_Tensor::redispatch(below(keys), part->local, *local),
      part->placement, self.sizes(), self);
}

// ---- Products.

/// Rows of the left factor times all of the right one; or columns of the left
/// one times the rows of the right one that belong to them, a part of a sum.
at::Tensor mm(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    const at::Tensor& other) {
  const Part* part = part_for_kernel(self);
  if (part != nullptr && part->placement.is_shard()) {
    const Sizes sizes{self.size(0), other.size(1)};
    if (part->placement.dim() == 0 && is_plain(other)) {
      const InsideGuard inside;
      return placed(
          *part, at::_ops::mm::redispatch(below(keys), part->local, other),
          part->placement, sizes);
    }
    const Part* its = part_for_kernel(other);
    if (part->placement.dim() == 1 && its != nullptr &&
        its->axis == part->axis &&
        its->placement == part->placement.with_dim(0)) {
      const InsideGuard inside;
      return placed(
          *part, at::_ops::mm::redispatch(below(keys), part->local, its->local),
          Partial(), sizes);
    }
  }
  return by_table<at::_ops::mm>(self, other);
}

at::Tensor addmm(
    c10::DispatchKeySet keys,
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
      *part,
      at::_ops::addmm::redispatch(
          below(keys), self, part->local, right, beta, alpha),
      part->placement, Sizes{left.size(0), right.size(1)});
}

// ---- Sums.

at::Tensor sum(
    c10::DispatchKeySet keys,
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
  return placed(
      *part,
      at::_ops::sum_dim_IntList::redispatch(
          below(keys), part->local, dims, keepdim, dtype),
      place, sizes);
}

// ---- Views.

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
  return view_transposed(
      self, part,
      place.is_shard() ? place.with_dim(1 - place.dim()) : place,
      handle_of<at::_ops::t>());
}

/// Where the dimensions up to the one that is cut stay as they are.
at::Tensor view(const at::Tensor& self, c10::IntArrayRef asked) {
  Part* part = part_for_kernel(self);
  if (part == nullptr || !self.is_contiguous() || !part->local.is_contiguous()) {
    return by_table<at::_ops::view>(self, asked);
  }
  const auto& place = part->placement;
  const size_t leading = place.is_shard() ? place.dim() + 1 : 0;
  Sizes sizes;
  int64_t count = 1;
  bool open = false;
  assign(sizes, asked);
  for (const int64_t n : asked) {
    open = open || n < 0;
    count *= n;
  }
  if (open || count != self.numel()) {
    // Throws where it does not fit.
    const auto inferred = at::infer_size(asked, self.numel());
    assign(sizes, inferred);
  }
  if (sizes.size() < leading ||
      !std::equal(sizes.begin(), sizes.begin() + leading, self.sizes().begin())) {
    return by_table<at::_ops::view>(self, asked);
  }
  Sizes own;
  assign(own, sizes);
  if (place.is_shard()) {
    own[place.dim()] = part->local.size(place.dim());
  }
  return view_contiguous(
      self, part, own, place, sizes, handle_of<at::_ops::view>());
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
