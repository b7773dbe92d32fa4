#include "distributed/kernels.h"

#include "distributed/by_table.h"
#include "distributed/call.h"
#include "distributed/host_reads.h"
#include "distributed/lineage.h"
#include "distributed/recompute.h"
#include "distributed/replacing.h"
#include "distributed/watch.h"

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>

namespace accel::distributed {
namespace {

/// The part of a tensor that a kernel here may work on: cut, or a part of a
/// sum, along one axis, while nobody looks at operators, in the mesh's own
/// thread. Null for every other tensor.
Part* part_for_kernel(const at::Tensor& tensor) {
  static const Watch& watched = watch();
  Part* part = part_of(tensor);
  if (part == nullptr || watched.any ||
      !(part->placement.is_shard() || part->placement.is_sum()) ||
      !is_plain(part->local) || !part->axis->is_own_thread() ||
      has_unusual_ones(tensor)) {
    return nullptr;
  }
  return part;
}

/// Parts of a sum times infinity are no parts of the sum times infinity.
bool is_finite(const at::Scalar& number) {
  return !number.isFloatingPoint() || std::isfinite(number.toDouble());
}

/// A result whose order in memory is that of the dimensions.
at::Tensor placed(
    const Part& part,
    at::Tensor&& local,
    const Placement& placement,
    c10::IntArrayRef sizes) {
  return local.is_contiguous()
      ? make_contiguous(*part.axis, std::move(local), placement, sizes)
      : make_tensor(*part.axis, std::move(local), placement, sizes);
}

// ---- Pointwise.

/// `meets` for a tensor that all processes have.
C10_NOINLINE bool meets_whole(
    const at::Tensor& self,
    const Part& part,
    const at::Tensor& other) {
  // Where some process has a single row, parts do not show which operand the order
  // of the result's memory follows.
  if (!part.placement.is_shard() || !is_plain(other) ||
      has_unusual_ones(other) ||
      (has_single_rows(*part.axis, part.placement, self.sizes()) &&
       !(has_usual_strides(self) && has_usual_strides(other)))) {
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

/// Whether the result of a pointwise operator has `self`'s sizes, and each
/// process has all of `other` that its part of `self` meets. If so, `local` is
/// that.
bool meets(
    const at::Tensor& self,
    const Part& part,
    const at::Tensor& other,
    const at::Tensor*& local) {
  const Part* its = part_of(other);
  if (its == nullptr) {
    local = &other;
    return meets_whole(self, part, other);
  }
  local = &its->local;
  return its->axis == part.axis && its->placement == part.placement &&
      same_sizes(other.sizes(), self.sizes()) && is_plain(its->local) &&
      !has_unusual_ones(other);
}

/// Any operator whose result has at each place what its arguments have there,
/// and depends on nothing else: on parts of one tensor's sizes and place, and on
/// what all processes have.
template <typename Op, typename Schema = typename Op::schema>
struct Pointwise;

template <typename Op, typename... Args>
struct Pointwise<Op, at::Tensor(Args...)> {
  static at::Tensor call(c10::DispatchKeySet keys, Args... args) {
    const at::Tensor* first = nullptr;
    const Part* part = nullptr;
    (find(args, first, part), ...);
    if (part == nullptr || !part->placement.is_shard() ||
        !(fits(args, *first, *part) && ...)) {
      return by_table<Op>(args...);
    }
    const InsideGuard inside;
    return make_like(
        *part, Op::redispatch(below(keys), local(args)...), *first);
  }

 private:
  template <typename T>
  static void find(const T& value, const at::Tensor*& first, const Part*& part) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      if (first == nullptr && has_part(value)) {
        first = &value;
        part = part_for_kernel(value);
      }
    }
  }
  template <typename T>
  static bool fits(const T& value, const at::Tensor& first, const Part& part) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      const at::Tensor* its = nullptr;
      // The order of the result's memory is that of the first of its sizes.
      return &value == &first ||
          (meets(first, part, value, its) &&
           (its != &value || value.sizes() != first.sizes()));
    }
    return true;
  }
  template <typename T>
  static const auto& local(const T& value) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return has_part(value) ? part_of(value)->local : value;
    } else {
      return value;
    }
  }
};

at::Tensor add(
    c10::DispatchKeySet keys,
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
  auto sum = at::_ops::add_Tensor::redispatch(
      below(keys), part->local, *local, alpha);
  return part->placement.is_shard()
      ? make_like(*part, std::move(sum), self)
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
      root_of(part)->kept.defined() || !meets(self, *part, other, local) ||
      (part->placement.is_sum() && !is_finite(alpha))) {
    if (may_become_sum(self, other)) {
      self = by_table<at::_ops::add_Tensor>(self, other, alpha);
    } else {
      by_table<at::_ops::add__Tensor>(self, other, alpha);
    }
    return self;
  }
  const InsideGuard inside;
  before_write(part);
  at::_ops::add__Tensor::redispatch(below(keys), part->local, *local, alpha);
  return self;
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

// ---- Reductions.

/// What a reduction over some dimensions leaves of a tensor; over all of them where
/// `dims` is empty. Where the cut one is among them, the processes have parts that
/// `op` puts together. False where LibTorch has something to say to `dims`.
bool reduce_sizes(
    const at::Tensor& self,
    c10::IntArrayRef dims,
    bool keepdim,
    ReduceOp op,
    Sizes& sizes,
    Placement& place) {
  const auto all = self.sizes();
  const auto n = static_cast<int64_t>(all.size());
  if (n == 0 || n >= 64) {
    return false;
  }
  uint64_t gone = dims.empty() ? ~uint64_t{0} : 0;
  ACCEL_FEW_ROUNDS
  for (const int64_t dim : dims) {
    const int64_t along = dim < 0 ? dim + n : dim;
    if (along < 0 || along >= n || (gone >> along & 1) != 0) {
      return false;
    }
    gone |= uint64_t{1} << along;
  }
  const int64_t cut = place.is_shard() ? place.dim() : -1;
  ACCEL_FEW_ROUNDS
  for (int64_t d = 0; d < n; ++d) {
    const bool stays = (gone >> d & 1) == 0;
    if (d == cut) {
      place = stays ? place.with_dim(static_cast<int64_t>(sizes.size()))
                    : Partial(op);
    }
    if (stays || keepdim) {
      sizes.push_back(stays ? all[d] : 1);
    }
  }
  return true;
}

at::Tensor sum(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    at::OptionalIntArrayRef dims,
    bool keepdim,
    std::optional<at::ScalarType> dtype) {
  const Part* part = part_for_kernel(self);
  Sizes sizes;
  Placement place = part != nullptr ? part->placement : Placement();
  // Parts of a sum that another dtype rounds are not added later.
  if (part == nullptr || !dims.has_value() ||
      (dtype.has_value() && *dtype != self.scalar_type()) ||
      !reduce_sizes(self, *dims, keepdim, ReduceOp::kSum, sizes, place)) {
    return by_table<at::_ops::sum_dim_IntList>(self, dims, keepdim, dtype);
  }
  const InsideGuard inside;
  return placed(
      *part,
      at::_ops::sum_dim_IntList::redispatch(
          below(keys), part->local, dims, keepdim, dtype),
      place, sizes);
}

/// amax and amin, of rows.
template <typename Op, ReduceOp Extreme>
at::Tensor extreme(
    c10::DispatchKeySet keys,
    const at::Tensor& self,
    c10::IntArrayRef dims,
    bool keepdim) {
  const Part* part = part_for_kernel(self);
  Sizes sizes;
  Placement place = part != nullptr ? part->placement : Placement();
  if (!place.is_shard() || !has_usual_strides(self) ||
      !reduce_sizes(self, dims, keepdim, Extreme, sizes, place)) {
    return by_table<Op>(self, dims, keepdim);
  }
  const InsideGuard inside;
  return placed(
      *part, Op::redispatch(below(keys), part->local, dims, keepdim), place,
      sizes);
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

/// The view that `change` makes of the sizes, strides and offset of a tensor; of
/// the local tensor likewise.
template <typename Op, typename Change>
at::Tensor viewed(
    const at::Tensor& self,
    Part* part,
    const Placement& placement,
    std::initializer_list<c10::IValue> arguments,
    const Change& change) {
  auto whole = geometry_of(self);
  auto local = geometry_of(part->local);
  change(whole);
  change(local);
  auto view = c10::make_intrusive<ViewOf>(
      PartPtr::reclaim_copy(part), handle_of<Op>());
  view->arguments.append(arguments.begin(), arguments.end());
  return view_strided(part, local, placement, whole, std::move(view));
}

at::Tensor transpose(const at::Tensor& self, int64_t a, int64_t b) {
  Part* part = part_for_kernel(self);
  if (part == nullptr) {
    return by_table<at::_ops::transpose_int>(self, a, b);
  }
  const int64_t dims = self.dim();
  const int64_t one = c10::maybe_wrap_dim(a, dims);
  const int64_t other = c10::maybe_wrap_dim(b, dims);
  if (dims == 0) {
    return by_table<at::_ops::transpose_int>(self, a, b);
  }
  const auto& place = part->placement;
  const bool goes = place.is_shard(one) || place.is_shard(other);
  return viewed<at::_ops::transpose_int>(
      self, part,
      goes ? place.with_dim(place.is_shard(one) ? other : one) : place, {a, b},
      [&](Geometry& shape) {
        std::swap(shape.sizes[one], shape.sizes[other]);
        std::swap(shape.strides[one], shape.strides[other]);
      });
}

/// Beside the dimension that is cut.
at::Tensor slice(
    const at::Tensor& self,
    int64_t dim,
    std::optional<int64_t> start,
    std::optional<int64_t> end,
    int64_t step) {
  Part* part = part_for_kernel(self);
  const int64_t dims = self.dim();
  const int64_t along = dim < 0 ? dim + dims : dim;
  if (part == nullptr || along < 0 || along >= dims || step <= 0 ||
      part->placement.is_shard(along)) {
    return by_table<at::_ops::slice_Tensor>(self, dim, start, end, step);
  }
  const int64_t n = self.sizes()[along];
  const auto row = [n](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n);
  };
  const int64_t first = row(start.value_or(0));
  const int64_t rows = std::max<int64_t>(row(end.value_or(n)) - first, 0);
  return viewed<at::_ops::slice_Tensor>(
      self, part, part->placement, {dim, start, end, step},
      [&](Geometry& shape) {
        shape.offset += first * shape.strides[along];
        shape.sizes[along] = (rows + step - 1) / step;
        shape.strides[along] *= step;
      });
}

/// Beside the dimension that is cut.
at::Tensor select(const at::Tensor& self, int64_t dim, int64_t index) {
  Part* part = part_for_kernel(self);
  const int64_t dims = self.dim();
  const int64_t along = dim < 0 ? dim + dims : dim;
  if (part == nullptr || along < 0 || along >= dims ||
      index < -self.sizes()[along] || index >= self.sizes()[along] ||
      part->placement.is_shard(along) ||
      is_read_by_elements(self, part->placement)) {
    return by_table<at::_ops::select_int>(self, dim, index);
  }
  const int64_t row = index < 0 ? index + self.sizes()[along] : index;
  const auto& place = part->placement;
  return viewed<at::_ops::select_int>(
      self, part,
      place.is_shard() && place.dim() > along ? place.with_dim(place.dim() - 1)
                                              : place,
      {dim, index}, [&](Geometry& shape) {
        shape.offset += row * shape.strides[along];
        shape.sizes.erase(shape.sizes.begin() + along);
        shape.strides.erase(shape.strides.begin() + along);
      });
}

at::Tensor unsqueeze(const at::Tensor& self, int64_t dim) {
  Part* part = part_for_kernel(self);
  const int64_t dims = self.dim();
  const int64_t along = dim < 0 ? dim + dims + 1 : dim;
  if (part == nullptr || along < 0 || along > dims) {
    return by_table<at::_ops::unsqueeze>(self, dim);
  }
  const auto& place = part->placement;
  return viewed<at::_ops::unsqueeze>(
      self, part,
      place.is_shard() && place.dim() >= along ? place.with_dim(place.dim() + 1)
                                               : place,
      {dim}, [&](Geometry& shape) {
        const int64_t step =
            along == dims ? 1 : shape.sizes[along] * shape.strides[along];
        shape.sizes.insert(shape.sizes.begin() + along, 1);
        shape.strides.insert(shape.strides.begin() + along, step);
      });
}

at::Tensor permute(const at::Tensor& self, c10::IntArrayRef order) {
  Part* part = part_for_kernel(self);
  const int64_t dims = self.dim();
  uint64_t seen = 0;
  Sizes from;
  for (const int64_t dim : order) {
    const int64_t along = dim < 0 ? dim + dims : dim;
    if (along < 0 || along >= dims) {
      break;
    }
    seen |= uint64_t{1} << (along % 64);
    from.push_back(along);
  }
  if (part == nullptr || dims == 0 || dims >= 64 ||
      static_cast<int64_t>(from.size()) != dims ||
      seen + 1 != uint64_t{1} << dims) {
    return by_table<at::_ops::permute>(self, order);
  }
  auto place = part->placement;
  if (place.is_shard()) {
    place = place.with_dim(
        std::find(from.begin(), from.end(), place.dim()) - from.begin());
  }
  return viewed<at::_ops::permute>(
      self, part, place, {order}, [&](Geometry& shape) {
        const Geometry old = shape;
        for (int64_t d = 0; d < dims; ++d) {
          shape.sizes[d] = old.sizes[from[d]];
          shape.strides[d] = old.strides[from[d]];
        }
      });
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

template <typename Op, auto* kKernel>
void install_kernel(torch::Library& library) {
  std::string name = Op::name;
  if (*Op::overload_name != 0) {
    name += std::string(".") + Op::overload_name;
  }
  using Kernel = WithLineage<Op, kKernel>;
  library.impl(
      name.c_str(),
      c10::CompileTimeFunctionPointer<decltype(Kernel::call), &Kernel::call>());
}

template <typename... Ops>
void install_pointwise(torch::Library& library) {
  (install_kernel<Ops, &Pointwise<Ops>::call>(library), ...);
}

void install_kernels(torch::Library& library) {
  install_pointwise<
      at::_ops::neg,
      at::_ops::abs,
      at::_ops::exp,
      at::_ops::log,
      at::_ops::log1p,
      at::_ops::expm1,
      at::_ops::sqrt,
      at::_ops::rsqrt,
      at::_ops::sin,
      at::_ops::cos,
      at::_ops::erf,
      at::_ops::reciprocal,
      at::_ops::tanh,
      at::_ops::sigmoid,
      at::_ops::relu,
      at::_ops::silu,
      at::_ops::gelu,
      at::_ops::elu,
      at::_ops::leaky_relu,
      at::_ops::softplus,
      at::_ops::hardtanh,
      at::_ops::sub_Tensor,
      at::_ops::mul_Tensor,
      at::_ops::div_Tensor,
      at::_ops::maximum,
      at::_ops::minimum,
      at::_ops::add_Scalar,
      at::_ops::sub_Scalar,
      at::_ops::mul_Scalar,
      at::_ops::div_Scalar,
      at::_ops::pow_Tensor_Scalar,
      at::_ops::clamp,
      at::_ops::clamp_min,
      at::_ops::eq_Scalar,
      at::_ops::ne_Scalar,
      at::_ops::lt_Scalar,
      at::_ops::le_Scalar,
      at::_ops::gt_Scalar,
      at::_ops::ge_Scalar,
      at::_ops::eq_Tensor,
      at::_ops::where_self,
      at::_ops::addcmul,
      at::_ops::addcdiv,
      at::_ops::threshold_backward,
      at::_ops::tanh_backward,
      at::_ops::sigmoid_backward,
      at::_ops::silu_backward,
      at::_ops::gelu_backward,
      at::_ops::elu_backward,
      at::_ops::leaky_relu_backward>(library);
  install_kernel<at::_ops::add_Tensor, &add>(library);
  install_kernel<at::_ops::add__Tensor, &add_>(library);
  install_kernel<at::_ops::mm, &mm>(library);
  install_kernel<at::_ops::addmm, &addmm>(library);
  install_kernel<at::_ops::sum_dim_IntList, &sum>(library);
  install_kernel<at::_ops::amax, &extreme<at::_ops::amax, ReduceOp::kMax>>(library);
  install_kernel<at::_ops::amin, &extreme<at::_ops::amin, ReduceOp::kMin>>(library);
  install_kernel<at::_ops::t, &t>(library);
  install_kernel<at::_ops::view, &view>(library);
  install_kernel<at::_ops::transpose_int, &transpose>(library);
  install_kernel<at::_ops::permute, &permute>(library);
  install_kernel<at::_ops::slice_Tensor, &slice>(library);
  install_kernel<at::_ops::select_int, &select>(library);
  install_kernel<at::_ops::unsqueeze, &unsqueeze>(library);
  library.impl("detach", TORCH_FN(detach)); // The same part.
}

} // namespace accel::distributed
