#include "compare.h"

#include "distributed/collectives.h"

#include <accel/distributed/tensor.h>

#include <ATen/ATen.h>

#include <sstream>

namespace accel::distributed::test {
namespace {

void add(Snapshot& all, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    all.tensors.emplace_back();
    all.sizes.emplace_back();
    all.strides.emplace_back();
    return;
  }
  all.sizes.push_back(tensor.sizes().vec());
  all.strides.push_back(
      tensor.layout() == at::kStrided ? tensor.strides().vec()
                                      : std::vector<int64_t>());
  auto whole = full_tensor(tensor).detach();
  all.tensors.push_back(whole.layout() == at::kStrided ? whole.clone()
                                                       : whole.to_dense());
}

void add(Snapshot& all, const c10::IValue& value) {
  if (value.isTensor()) {
    add(all, value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      add(all, tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor :
         value.toOptionalTensorList().vec()) {
      add(all, tensor.value_or(at::Tensor()));
    }
  } else if (value.isGenerator()) {
    all.others.emplace_back("generator");
  } else {
    std::ostringstream text;
    text.precision(17);
    text << value;
    all.others.push_back(text.str());
  }
}

std::string first_different(const at::Tensor& plain, const at::Tensor& got, const at::Tensor& equal) {
  const auto where = at::nonzero(equal.logical_not());
  std::ostringstream text;
  text.precision(12);
  const auto index = where[0];
  std::vector<int64_t> at_index;
  at::Tensor a = plain;
  at::Tensor b = got;
  for (int64_t d = 0; d < index.numel(); ++d) {
    const int64_t i = index[d].item<int64_t>();
    at_index.push_back(i);
    a = a.select(0, i);
    b = b.select(0, i);
  }
  text << b.item() << " instead of " << a.item() << " at "
       << c10::IntArrayRef(at_index) << ", " << where.size(0) << " of "
       << plain.numel() << " values differ";
  return text.str();
}

std::string difference(
    const at::Tensor& plain,
    const at::Tensor& got,
    const Tolerance& tolerance) {
  if (plain.scalar_type() != got.scalar_type()) {
    return c10::str("dtype ", got.scalar_type(), " instead of ", plain.scalar_type());
  }
  if (plain.device() != got.device()) {
    return c10::str("device ", got.device(), " instead of ", plain.device());
  }
  if (plain.sizes() != got.sizes()) {
    return c10::str("sizes ", got.sizes(), " instead of ", plain.sizes());
  }
  if (tolerance.only_shapes || plain.numel() == 0) {
    return "";
  }
  const bool inexact = plain.is_floating_point() || plain.is_complex();
  // The largest rounding of a dtype grows with its precision.
  double relative = tolerance.relative;
  double absolute = tolerance.absolute;
  if (inexact && plain.scalar_type() != at::kDouble &&
      plain.scalar_type() != at::kComplexDouble) {
    const bool half = plain.scalar_type() == at::kHalf ||
        plain.scalar_type() == at::kBFloat16;
    relative = half ? 2e-2 : 1e-4;
    absolute = half ? 1e-2 : 1e-5;
  }
  const auto equal = inexact
      ? at::isclose(got, plain, relative, absolute, /*equal_nan=*/true)
      : at::eq(got, plain);
  return equal.all().item<bool>() ? "" : first_different(plain, got, equal);
}

} // namespace

Snapshot snapshot(const torch::jit::Stack& values) {
  Snapshot all;
  for (const auto& value : values) {
    add(all, value);
  }
  return all;
}

std::string difference(
    const Snapshot& plain,
    const Snapshot& got,
    const Tolerance& tolerance) {
  if (plain.tensors.size() != got.tensors.size()) {
    return c10::str(
        got.tensors.size(), " tensors instead of ", plain.tensors.size());
  }
  if (!tolerance.only_shapes && plain.others != got.others) {
    return c10::str("value ", got.others, " instead of ", plain.others);
  }
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    const auto& a = plain.tensors[i];
    const auto& b = got.tensors[i];
    const auto tensor = "tensor " + std::to_string(i) + ": ";
    if (!a.defined() || !b.defined()) {
      if (a.defined() != b.defined()) {
        return tensor + (b.defined() ? "defined" : "undefined");
      }
      continue;
    }
    if (plain.sizes[i] != got.sizes[i]) {
      return c10::str(tensor, "says sizes ", got.sizes[i], " instead of ", plain.sizes[i]);
    }
    const auto text = difference(a, b, tolerance);
    if (!text.empty()) {
      return tensor + text;
    }
    if (tolerance.strides && !plain.strides[i].empty() && a.numel() > 0 &&
        at::empty_strided(plain.sizes[i], plain.strides[i], at::device(at::kMeta))
            .is_non_overlapping_and_dense() &&
        plain.strides[i] != got.strides[i]) {
      return c10::str(
          tensor, "strides ", got.strides[i], " instead of ", plain.strides[i],
          " of sizes ", plain.sizes[i]);
    }
  }
  return "";
}

} // namespace accel::distributed::test
