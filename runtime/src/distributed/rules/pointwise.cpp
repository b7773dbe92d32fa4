#include "distributed/recompute.h"
#include "distributed/memory_order.h"
#include "distributed/rules/table.h"
#include "distributed/sequence.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

// Each element of the result depends on the elements at its own place, as
// broadcasting pairs them: what is cut stays cut, the others are cut alike.

namespace accel::distributed::pointwise_rules {
namespace {

/// What a pointwise operator is about: the tensors among its arguments.
struct Operands {
  Sizes sizes;
  /// The largest tensor that is cut, in a dimension that is not broadcast.
  const at::Tensor* cut = nullptr;
  /// Parts of whatever kind, of these parts of sums; and tensors that are none.
  int partial = 0;
  int sums = 0;
  int others = 0;
};

Operands operands_of(const Call& call) {
  Operands all;
  int64_t dims = 0;
  for (const auto i : call.info().tensors) {
    if (call.has(i)) {
      dims = std::max(dims, call.tensor(i).dim());
    }
  }
  all.sizes.resize(dims, 1);
  int64_t largest = -1;
  for (const auto i : call.info().tensors) {
    if (!call.has(i)) {
      continue;
    }
    const auto& tensor = call.tensor(i);
    const int64_t offset = dims - tensor.dim();
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (tensor.size(d) != 1) {
        all.sizes[offset + d] = tensor.size(d);
      }
    }
    const Part* part = call.part(tensor);
    const int64_t size = call.weight(tensor);
    if (part != nullptr && part->placement.is_shard() &&
        tensor.size(part->placement.dim()) != 1 && size > largest) {
      all.cut = &tensor;
      largest = size;
    }
    if (part != nullptr && part->placement.is_partial()) {
      ++all.partial;
      all.sums += part->placement.is_sum() ? 1 : 0;
    } else {
      ++all.others;
    }
  }
  return all;
}

/// The strides of the plain result, for operators that cannot be asked on tensors
/// without memory (`isnan`, `where`).
Sizes strides_of_whole(const Call& call, c10::IntArrayRef sizes) {
  std::vector<at::Tensor> operands;
  for (const auto i : call.info().tensors) {
    if (call.has(i)) {
      operands.push_back(call.tensor(i));
    }
  }
  return strides_of_pointwise(operands, sizes);
}

bool is_finite(const c10::Scalar& number) {
  if (number.isComplex()) {
    const auto value = number.toComplexDouble();
    return std::isfinite(value.real()) && std::isfinite(value.imag());
  }
  return !number.isFloatingPoint() || std::isfinite(number.toDouble());
}

/// Whether all elements of a small tensor are finite, for less than a sum of the
/// processes costs; those of masks and other integers are.
bool is_small_and_finite(const at::Tensor& tensor) {
  constexpr int64_t kMost = 4096;
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) ||
      (tensor.numel() <= kMost && tensor.is_floating_point() &&
       at::isfinite(tensor).all().item<bool>());
}

/// The same, and no zero among them.
bool is_small_divisor(const at::Tensor& tensor) {
  return tensor.is_floating_point() && is_small_and_finite(tensor) &&
      tensor.ne(0).all().item<bool>();
}

/// Whether parts of a sum may be multiplied or divided by argument `i`: by a number
/// that all processes know and that is finite, and no zero to divide by. 1 / 0 and
/// -1 / 0 add up to nothing that their sum / 0 is; of a larger tensor that would
/// have to be looked up for each element. That is done where gradients of small
/// parameters are multiplied or divided, `exp(scale) * x`: they are added up once, at
/// the end.
bool is_factor(const Call& call, size_t i, bool divides) {
  const auto& value = call.at(i);
  c10::Scalar number;
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined() || !tensor.is_cpu() || part_of(tensor) != nullptr) {
      return false;
    }
    if (tensor.numel() != 1) {
      return in_backward() &&
          (divides ? is_small_divisor(tensor) : is_small_and_finite(tensor));
    }
    number = tensor.item();
  } else if (value.isScalar()) {
    number = value.toScalar();
  } else {
    return false;
  }
  return is_finite(number) && !(divides && number.equal(0));
}

bool has_one_element(c10::IntArrayRef sizes) {
  return std::all_of(
      sizes.begin(), sizes.end(), [](int64_t n) { return n == 1; });
}

/// Operators that are linear in one tensor, or in two, as far as parts of sums
/// go.
bool keeps_sums(const Call& call, const Operands& operands) {
  static const std::unordered_set<std::string> of_one{
      "aten::mul", "aten::div", "aten::neg", "aten::clone", "aten::negative"};
  static const std::unordered_set<std::string> of_all{"aten::add", "aten::sub"};
  // Linear in the first, with slopes that are bounded: of what all have, a parameter's.
  static const std::unordered_set<std::string> of_gradient{
      "aten::sigmoid_backward",   "aten::tanh_backward",
      "aten::threshold_backward", "aten::leaky_relu_backward",
      "aten::hardtanh_backward",  "aten::hardsigmoid_backward",
      "aten::softplus_backward",  "aten::elu_backward",
      "aten::silu_backward",      "aten::gelu_backward"};
  if (operands.sums != operands.partial) {
    return false;
  }
  const auto& name = call.name();
  if (of_gradient.count(name) != 0) {
    return in_backward() && operands.partial == 1 && call.place(0).is_sum();
  }
  if (of_all.count(name) != 0) {
    return operands.partial == 2 && is_factor(call, 2, false);
  }
  if (operands.partial != 1 || of_one.count(name) == 0) {
    return false;
  }
  // In `0.001 * g * g` both factors must be one number, added up once: where the parts
  // of a gradient cancel but for rounding, `0.001 * g` added up for itself may have
  // another sign, and no square root. Sums of one element are losses, and what a
  // gradient goes through is an activation: they stay as they are.
  if ((name == "aten::mul" || name == "aten::div") && !in_backward() &&
      !has_one_element(operands.sizes) &&
      !call.tensor(call.place(0).is_sum() ? 0 : 1).requires_grad()) {
    return false;
  }
  if (name == "aten::mul") {
    return is_factor(call, call.place(0).is_sum() ? 1 : 0, false);
  }
  // a / sum is not a sum, and rounding a quotient is not linear.
  return call.place(0).is_sum() &&
      call.overload().find("mode") == std::string::npos &&
      (name != "aten::div" || is_factor(call, 1, true));
}

/// A loss of which each process has a part, and a number that all have: a weight
/// penalty, or a sum that begins at zero. One process adds it, and the loss is
/// added up where it is read, not here. Only sums of one element, which cost
/// little to be added up several times, and gradients, which are added up once, at
/// the end; and no differences, which programs compare with zero.
bool add_number_once(Call& call, const Operands& operands) {
  if (call.name() != "aten::add" || operands.partial != 1 ||
      operands.sums != 1 || !call.at(2).isScalar() ||
      !call.at(2).toScalar().equal(1) ||
      !(has_one_element(operands.sizes) || in_backward())) {
    return false;
  }
  const size_t sum = call.place(0).is_sum() ? 0 : 1;
  const size_t number = 1 - sum;
  if (call.at(number).isTensor() && part_of(call.tensor(number)) != nullptr) {
    return false; // it is distributed along another axis
  }
  if (call.axis().rank() != 0) {
    if (call.at(number).isTensor()) {
      auto zero = at::zeros_like(call.tensor(number));
      // A number that LibTorch wrapped in a tensor has no say in the dtype.
      if (call.tensor(number).unsafeGetTensorImpl()->is_wrapped_number()) {
        zero.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
      call.set(number, zero);
    } else {
      const auto scalar = call.at(number).toScalar();
      call.set(number, scalar.isFloatingPoint() ? c10::Scalar(0.0)
                   : scalar.isComplex() ? c10::Scalar(c10::complex<double>(0))
                   : scalar.isBoolean() ? c10::Scalar(false)
                                        : c10::Scalar(0));
    }
  }
  call.use_local(sum);
  call.run();
  call.place_result(0, Partial(), operands.sizes);
  return true;
}

/// The dimensions of arguments that are cut like the result.
Placement place_in(const at::Tensor& tensor, int64_t back, const Cut& cut) {
  const int64_t dim = tensor.dim() - back;
  return dim < 0 || tensor.size(dim) == 1 ? Replicate() : Shard(dim, cut);
}

bool in_place(Call& call) {
  const at::Tensor self = call.tensor(0);
  const Part* part = call.part(self);
  if (part == nullptr) {
    return false;
  }
  const auto place = part->placement;
  if (place.is_shard() && self.size(place.dim()) != 1) {
    const int64_t back = self.dim() - place.dim();
    for (const auto i : call.info().tensors) {
      if (call.has(i) && call.tensor(i).dim() > self.dim()) {
        return false; // an error, which the whole tensors give
      }
    }
    for (const auto i : call.info().tensors) {
      if (call.has(i)) {
        call.use(i, place_in(call.tensor(i), back, place.cut()));
      }
    }
    call.run();
    call.return_self(self);
    return true;
  }
  static const std::unordered_set<std::string> linear{
      "aten::mul_", "aten::div_", "aten::neg_"};
  static const std::unordered_set<std::string> sums{"aten::add_", "aten::sub_"};
  const auto operands = operands_of(call);
  // It is `self` that is the sum: what all have, times a part of a sum, would be
  // a part of a sum in a place that says otherwise.
  const bool by_numbers = linear.count(call.name()) != 0 &&
      place.is_sum() && operands.partial == 1 &&
      call.overload().find("mode") == std::string::npos &&
      (call.name() == "aten::neg_" ||
       is_factor(call, 1, call.name() == "aten::div_"));
  const bool of_sums = sums.count(call.name()) != 0 && operands.partial == 2 &&
      operands.others == 0 && is_factor(call, 2, false);
  if (!(by_numbers || of_sums) &&
      c10::IntArrayRef(operands.sizes) == self.sizes() &&
      scatter_sum(call.axis(), self, call.name().c_str())) {
    return in_place(call);
  }
  // A replicated tensor must stay one: all have to write the same into it.
  if (!place.is_sum() || operands.sums != operands.partial ||
      c10::IntArrayRef(operands.sizes) != self.sizes() ||
      !(by_numbers || of_sums) || operands.cut != nullptr) {
    return false;
  }
  for (const auto i : call.info().tensors) {
    call.use_local(i);
  }
  call.run();
  call.return_self(self);
  return true;
}

} // namespace

bool pointwise(Call& call) {
  if (call.info().is_in_place) {
    return in_place(call);
  }
  if (!call.info().writes.empty()) {
    return false; // out=
  }
  const auto operands = operands_of(call);
  const auto dims = static_cast<int64_t>(operands.sizes.size());
  // A sum that is not kept as one: in positions, where these are what is cut.
  const auto& sequence = SequenceParallel::get();
  const auto positions = operands.sums != 0 && sequence.is_on(call.axis())
      ? sequence.place(operands.sizes)
      : std::nullopt;
  if (operands.cut == nullptr && operands.partial == 0) {
    return false;
  }
  if (operands.cut == nullptr && keeps_sums(call, operands)) {
    const bool both = operands.partial == 2;
    for (const auto i : call.info().tensors) {
      if (both || call.place(i).is_sum()) {
        call.use_local(i);
      } else {
        call.use_whole(i);
      }
    }
    call.run();
    call.place_result(0, Partial(), operands.sizes);
    return true;
  }
  if (operands.cut == nullptr && !positions) {
    return add_number_once(call, operands);
  }
  const Placement place = positions ? *positions : call.place(*operands.cut);
  const int64_t back = (positions ? dims : operands.cut->dim()) - place.dim();
  const auto of_result = place.with_dim(dims - back);
  // Parts show it unless some process has a single row, or a slice of an operand has
  // gaps that the operand has not.
  const Sizes like = call.has_unordered() ||
          has_single_rows(call.axis(), of_result, operands.sizes)
      ? strides_of_whole(call, operands.sizes)
      : Sizes();
  for (const auto i : call.info().tensors) {
    if (call.has(i)) {
      call.use(i, place_in(call.tensor(i), back, place.cut()));
    }
  }
  call.run();
  call.place_result(0, of_result, operands.sizes, like);
  return true;
}

const Family& family() {
  static const Family rows{
  };
  return rows;
}

} // namespace accel::distributed::pointwise_rules
