#include "distributed/check.h"

#include "distributed/draws.h"

#include "core/call_site.h"
#include "distributed/collectives.h"
#include "distributed/rules/recurrent.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <sstream>
#include <unordered_map>

namespace accel::distributed {
namespace {

/// A copy in memory of its own that lies as the program sees `tensor` lie.
at::Tensor copy_of(const at::Tensor& tensor, const at::Tensor& value) {
  if (tensor.layout() != at::kStrided) {
    return value.clone();
  }
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  int64_t span = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    span += sizes[d] > 0 ? (sizes[d] - 1) * strides[d] : 0;
  }
  auto copy =
      at::zeros({span}, value.options()).as_strided(sizes, strides);
  // Elements that share memory are written once.
  auto target = copy;
  auto source = value;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (strides[d] == 0 && sizes[d] > 1) {
      target = target.narrow(d, 0, 1);
      source = source.narrow(d, 0, 1);
    }
  }
  target.copy_(source);
  return copy;
}

/// Replaces the tensors of a value, one for each tensor however often it is
/// there.
template <typename F>
c10::IValue map_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    return f(value.toTensor());
  }
  if (value.isTensorList()) {
    std::vector<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(f(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor :
         value.toOptionalTensorList().vec()) {
      list.push_back(tensor ? std::optional<at::Tensor>(f(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

/// Operators whose values mean nothing.
bool returns_fresh_memory(const c10::OperatorHandle& op) {
  const auto& name = op.schema().name();
  return name.find("empty") != std::string::npos || name == "aten::resize_" ||
      name == "aten::set_";
}

/// Whether a result has places that the operator does not write: the
/// probabilities behind a short sequence's end, say.
bool is_written_in_places(const c10::OperatorHandle& op, size_t result) {
  return op.schema().name() == "aten::_ctc_loss" && result == 1;
}

/// The greatest finite magnitude, 0 where there is none.
double magnitude_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 ||
      tensor.layout() != at::kStrided ||
      !(tensor.is_floating_point() || tensor.is_complex())) {
    return 0;
  }
  const auto magnitudes = at::abs(tensor).to(at::kDouble);
  return at::where(at::isfinite(magnitudes), magnitudes, at::zeros_like(magnitudes))
      .max()
      .item<double>();
}

bool has_sums(const at::Tensor& tensor) {
  at::Tensor inner = tensor;
  while (Part* part = part_of(inner)) {
    if (part->placement.is_partial() && at::isFloatingType(inner.scalar_type())) {
      return true;
    }
    inner = part->local;
  }
  return false;
}

/// The same of all processes' parts of sums, which may be far greater than what
/// they add up to. Collective for these.
double magnitude_of_parts(const at::Tensor& tensor, const char* operation) {
  double magnitude = 0;
  at::Tensor inner = tensor;
  while (Part* part = part_of(inner)) {
    if (part->placement.is_partial()) {
      const double own = magnitude_of(gather_all(part->local, operation));
      magnitude = std::max(
          magnitude,
          reduce(
              *part->axis, at::scalar_tensor(own, at::kDouble), ReduceOp::kMax,
              operation)
              .item<double>());
    }
    inner = part->local;
  }
  return magnitude;
}

/// By how much results may differ that were added up in another order: relative
/// to each value, and to the greatest value there was.
double rounding_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-9;
    case at::kHalf:
    case at::kBFloat16:
      return 3e-2;
    default:
      return 1e-4;
  }
}

/// Empty where they are the same.
std::string difference(
    const at::Tensor& expected,
    const at::Tensor& got,
    double magnitude,
    double least_rounding,
    bool only_shapes) {
  if (!expected.defined() || !got.defined()) {
    return expected.defined() == got.defined()
        ? ""
        : got.defined() ? "a tensor instead of none" : "no tensor";
  }
  if (expected.scalar_type() != got.scalar_type()) {
    return c10::str(
        "dtype ", got.scalar_type(), " instead of ", expected.scalar_type());
  }
  if (expected.sizes() != got.sizes()) {
    return c10::str("sizes ", got.sizes(), " instead of ", expected.sizes());
  }
  if (only_shapes || expected.numel() == 0 ||
      expected.layout() != at::kStrided || got.layout() != at::kStrided) {
    return "";
  }
  at::Tensor equal;
  if (expected.is_floating_point() || expected.is_complex()) {
    const double rounding =
        std::max(rounding_of(expected.scalar_type()), least_rounding);
    equal = at::isclose(
        got, expected, rounding,
        rounding * std::max(magnitude, magnitude_of(expected)),
        /*equal_nan=*/true);
  } else {
    equal = at::eq(got, expected);
  }
  if (equal.all().item<bool>()) {
    return "";
  }
  const auto where = at::nonzero(equal.logical_not());
  at::Tensor a = expected;
  at::Tensor b = got;
  std::vector<int64_t> index;
  for (int64_t d = 0; d < expected.dim(); ++d) {
    index.push_back(where[0][d].item<int64_t>());
    a = a.select(0, index.back());
    b = b.select(0, index.back());
  }
  std::ostringstream text;
  text.precision(12);
  text << b.item() << " instead of " << a.item() << " at "
       << c10::IntArrayRef(index) << ", " << where.size(0) << " of "
       << expected.numel() << " values differ";
  return text.str();
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  std::vector<at::Tensor> all;
  map_tensors(value, [&](const at::Tensor& tensor) {
    all.push_back(tensor);
    return tensor;
  });
  return all;
}

std::string text_of(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

void describe_tensor(std::ostream& out, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    out << "none";
    return;
  }
  out << tensor.sizes();
  at::Tensor inner = tensor;
  while (Part* part = part_of(inner)) {
    out << ' ' << part->placement;
    inner = part->local;
  }
}

} // namespace

std::string describe_arguments(
    const OperatorInfo& info,
    const torch::jit::Stack& stack) {
  std::ostringstream out;
  const size_t base = stack.size() - info.arguments;
  for (size_t i = 0; i < info.arguments; ++i) {
    const auto& value = stack[base + i];
    out << (i == 0 ? "" : ", ");
    if (value.isTensor()) {
      describe_tensor(out, value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      out << '{';
      size_t count = 0;
      for (const auto& tensor : tensors_of(value)) {
        out << (count == 0 ? "" : ", ");
        if (++count > 8) {
          out << "...";
          break;
        }
        describe_tensor(out, tensor);
      }
      out << '}';
    } else if (value.isGenerator()) {
      out << "generator";
    } else {
      out << value;
    }
  }
  return out.str();
}

struct ShadowCheck::State {
  State(const c10::OperatorHandle& op, const OperatorInfo& info)
      : op(op), info(info) {}
  const c10::OperatorHandle& op;
  const OperatorInfo& info;
  std::string arguments;
  /// What the program passed where the operator writes, and the copies of it.
  std::vector<at::Tensor> written;
  std::vector<at::Tensor> written_copies;
  torch::jit::Stack expected;
  std::string expected_error;
  double magnitude = 0;
  /// Of the arguments that are parts of sums: what they add up to has been rounded
  /// so, whatever the result's dtype is.
  double rounding = 0;
};

ShadowCheck::ShadowCheck(
    const c10::OperatorHandle& op,
    const OperatorInfo& info,
    const torch::jit::Stack& stack)
    : state_(std::make_unique<State>(op, info)) {
  const size_t base = stack.size() - info.arguments;
  const char* name = op.schema().name().c_str();
  state_->arguments = describe_arguments(info, stack);
  std::unordered_map<const void*, at::Tensor> copies;
  const auto copied = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return tensor;
    }
    auto& copy = copies[tensor.unsafeGetTensorImpl()];
    if (!copy.defined()) {
      copy = copy_of(tensor, gather_all(tensor, name));
      state_->magnitude = std::max(
          {state_->magnitude, magnitude_of(copy),
           magnitude_of_parts(tensor, name)});
      if (has_sums(tensor)) {
        state_->rounding =
            std::max(state_->rounding, rounding_of(tensor.scalar_type()));
      }
    }
    return copy;
  };
  for (size_t i = 0; i < info.arguments; ++i) {
    state_->expected.push_back(map_tensors(stack[base + i], copied));
  }
  for (const auto i : info.writes) {
    for (const auto& tensor : tensors_of(stack[base + i])) {
      state_->written.push_back(tensor);
      state_->written_copies.push_back(copied(tensor));
    }
  }
  const auto generator = generator_of(info, stack);
  at::Tensor before;
  if (generator) {
    before = state_of(*generator);
  }
  try {
    op.callBoxed(state_->expected);
  } catch (const c10::Error& error) {
    state_->expected_error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    state_->expected_error = error.what();
  }
  if (generator) {
    set_state(*generator, before);
  }
}

ShadowCheck::~ShadowCheck() = default;

void ShadowCheck::compare(const torch::jit::Stack& stack, bool by_rule) {
  auto& state = *state_;
  const char* name = state.op.schema().name().c_str();
  const auto fail = [&](const std::string& what) {
    const auto place = accel::detail::CallSite::here().describe();
    TORCH_CHECK(
        false,
        "accel: ACCEL_CHECK_PLACEMENTS: ", c10::toString(state.op.operator_name()),
        by_rule ? " by its rule" : " on gathered tensors",
        " is not what it is on whole tensors",
        place.empty() ? "" : ", called at " + place, ": ", what,
        ". Arguments and placements: ", state.arguments,
        ". This is a defect of the library; please report it with this message.");
  };
  if (!state.expected_error.empty()) {
    fail("whole tensors give the error \"" + state.expected_error + "\"");
  }
  const bool only_shapes = returns_fresh_memory(state.op);
  // All is gathered first: what one process finds must not keep it from what
  // the others wait for.
  std::string found;
  const auto look = [&](const at::Tensor& expected, const at::Tensor& got,
                        const std::string& what, bool only_shapes) {
    const auto value = got.defined() ? gather_all(got, name) : got;
    auto text = difference(
        expected, value, state.magnitude, state.rounding, only_shapes);
    if (text.empty() && got.defined() && got.sizes() != value.sizes()) {
      text = c10::str("says sizes ", got.sizes(), " and has ", value.sizes());
    }
    if (found.empty() && !text.empty()) {
      found = what + ": " + text;
    }
  };
  const size_t base = stack.size() - state.info.results;
  for (size_t k = 0; k < state.info.results; ++k) {
    if (static_cast<int>(k) == own_buffer(state.op).result) {
      continue;
    }
    const auto& expected = state.expected[k];
    const auto& got = stack[base + k];
    const auto expected_tensors = tensors_of(expected);
    const auto got_tensors = tensors_of(got);
    if (expected_tensors.size() != got_tensors.size()) {
      fail(c10::str(
          "result ", k, " holds ", got_tensors.size(), " tensors instead of ",
          expected_tensors.size()));
    }
    for (size_t i = 0; i < got_tensors.size(); ++i) {
      look(
          expected_tensors[i], got_tensors[i], "result " + std::to_string(k),
          only_shapes || is_written_in_places(state.op, k));
    }
    if (!got_tensors.empty() || found.size() != 0) {
      continue;
    }
    if (expected.isDouble() && got.isDouble()) {
      look(at::scalar_tensor(expected.toDouble(), at::kDouble),
           at::scalar_tensor(got.toDouble(), at::kDouble), "value", only_shapes);
    } else if (
        expected.isScalar() && got.isScalar() &&
        expected.toScalar().isFloatingPoint()) {
      look(at::scalar_tensor(expected.toScalar(), at::kDouble),
           at::scalar_tensor(got.toScalar(), at::kDouble), "value", only_shapes);
    } else if (!expected.isTensorList() && text_of(expected) != text_of(got)) {
      found = "value: " + text_of(got) + " instead of " + text_of(expected);
    }
  }
  for (size_t i = 0; i < state.written.size(); ++i) {
    look(
        state.written_copies[i], state.written[i],
        "written argument " + std::to_string(i), only_shapes);
  }
  if (!found.empty()) {
    fail(found);
  }
}

} // namespace accel::distributed
