#include "distributed/view_geometry.h"

#include "distributed/memory_order.h"
#include "distributed/thread_table.h"

#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <string>
#include <unordered_map>

namespace accel::distributed {
namespace {

/// Computes what a view has; false where it knows no formula.
using Formula = bool (*)(
    const at::Tensor& base,
    const ViewOf& view,
    c10::IntArrayRef sizes,
    Geometry& out);

Sizes strides_of(const at::Tensor& base) {
  return {base.strides().begin(), base.strides().end()};
}

int64_t dim_of(const c10::IValue& value, int64_t dims) {
  const int64_t dim = value.toInt();
  return dim < 0 ? dim + dims : dim;
}

bool same(
    const at::Tensor& base,
    const ViewOf&,
    c10::IntArrayRef,
    Geometry& out) {
  out.strides = strides_of(base);
  return true;
}

bool transpose(
    const at::Tensor& base,
    const ViewOf& view,
    c10::IntArrayRef,
    Geometry& out) {
  out.strides = strides_of(base);
  if (base.dim() > 0) {
    std::swap(
        out.strides[dim_of(view.arguments[0], base.dim())],
        out.strides[dim_of(view.arguments[1], base.dim())]);
  }
  return true;
}

bool t(
    const at::Tensor& base,
    const ViewOf&,
    c10::IntArrayRef,
    Geometry& out) {
  out.strides.assign(base.strides().rbegin(), base.strides().rend());
  return true;
}

bool permute(
    const at::Tensor& base,
    const ViewOf& view,
    c10::IntArrayRef,
    Geometry& out) {
  for (const int64_t dim : view.arguments[0].toIntVector()) {
    out.strides.push_back(base.stride(dim));
  }
  return true;
}

bool view_sizes(
    const at::Tensor& base,
    const ViewOf&,
    c10::IntArrayRef sizes,
    Geometry& out) {
  const auto strides =
      at::detail::computeStride(base.sizes(), base.strides(), sizes);
  if (!strides) {
    return false;
  }
  out.strides.assign(strides->begin(), strides->end());
  return true;
}

bool unsqueeze(
    const at::Tensor& base,
    const ViewOf& view,
    c10::IntArrayRef,
    Geometry& out) {
  out.strides = strides_of(base);
  const int64_t dim = dim_of(view.arguments[0], base.dim() + 1);
  const int64_t step =
      dim >= base.dim() ? 1 : base.size(dim) * base.stride(dim);
  out.strides.insert(out.strides.begin() + dim, step);
  return true;
}

bool select(
    const at::Tensor& base,
    const ViewOf& view,
    c10::IntArrayRef,
    Geometry& out) {
  const int64_t dim = dim_of(view.arguments[0], base.dim());
  int64_t row = view.arguments[1].toInt();
  row = row < 0 ? row + base.size(dim) : row;
  out.strides = strides_of(base);
  out.offset = row * base.stride(dim);
  out.strides.erase(out.strides.begin() + dim);
  return true;
}

bool slice(
    const at::Tensor& base,
    const ViewOf& view,
    c10::IntArrayRef,
    Geometry& out) {
  const int64_t dim = dim_of(view.arguments[0], base.dim());
  const int64_t n = base.size(dim);
  int64_t start = view.arguments[1].isNone() ? 0 : view.arguments[1].toInt();
  start = std::clamp<int64_t>(start < 0 ? start + n : start, 0, n);
  const int64_t step = view.arguments[3].toInt();
  out.strides = strides_of(base);
  out.offset = start * base.stride(dim);
  out.strides[dim] *= step;
  return true;
}

Formula formula_of(const c10::OperatorHandle& op) {
  // Not destroyed: destructors of globals call operators, too.
  static const auto& formulas = *new std::unordered_map<std::string, Formula>{
      {"aten::detach", same},        {"aten::alias", same},
      {"aten::transpose.int", transpose}, {"aten::t", t},
      {"aten::permute", permute},    {"aten::view", view_sizes},
      {"aten::_unsafe_view", view_sizes}, {"aten::unsqueeze", unsqueeze},
      {"aten::select.int", select},  {"aten::slice.Tensor", slice},
  };
  auto& known = thread_table<ska::flat_hash_map<const void*, Formula>>();
  const auto found = known.find(&op.schema());
  if (found != known.end()) {
    return found->second;
  }
  const auto named = formulas.find(c10::toString(op.operator_name()));
  return known[&op.schema()] =
             named == formulas.end() ? nullptr : named->second;
}

/// Any view: asks LibTorch, on tensors without memory.
void ask(const at::Tensor& base, const ViewOf& view, Geometry& out) {
  const at::Tensor result = view.of(at::empty_strided(
      base.sizes(),
      base.strides(),
      at::TensorOptions(base.scalar_type()).device(at::kMeta)));
  out.strides.assign(result.strides().begin(), result.strides().end());
  out.offset = result.storage_offset();
}

/// A dimension of which this process has one entry gets the stride that it has in a
/// part of the whole view: kernels ask for it where they look for channels-last, and
/// of the local tensor alone the view may have another.
void align_single_entries(
    const at::Tensor& local,
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides) {
  const auto wanted = strides_in_part(sizes, strides, local.sizes());
  Sizes own(local.strides().begin(), local.strides().end());
  bool differs = false;
  for (int64_t d = 0; d < local.dim(); ++d) {
    if (own[d] == wanted[d]) {
      continue;
    }
    if (local.size(d) != 1) {
      return; // it has gaps, and no order to lose
    }
    own[d] = wanted[d];
    differs = true;
  }
  if (!differs) {
    return;
  }
  local.unsafeGetTensorImpl()->set_sizes_and_strides(
      local.sizes(), own, local.storage_offset());
  if (const Part* further = part_of(local)) {
    align_single_entries(further->local, local.sizes(), own);
  }
}

} // namespace

void set_view_geometry(
    const at::Tensor& tensor,
    const at::Tensor& base,
    const ViewOf& view) {
  Geometry geometry;
  const Formula formula = formula_of(view.op);
  if (formula == nullptr ||
      !formula(base, view, tensor.sizes(), geometry)) {
    geometry = {};
    ask(base, view, geometry);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sizes(),
      geometry.strides,
      base.storage_offset() + geometry.offset);
  align_single_entries(part_of(tensor)->local, tensor.sizes(), geometry.strides);
}

} // namespace accel::distributed
