#include "double_precision.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/record_function.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace accel::verify {
namespace {

using Format = std::optional<at::MemoryFormat>;

bool widen_all = false;

/// The operators that this thread is in. An operator that converts one of its
/// operands for its own kernel (`t / 2` with a float32 tensor makes the 2 one)
/// takes the result for what it has asked for: a wider one would be misread. So
/// only what the program itself asks for is widened, which is where the
/// outermost operator makes or converts a tensor.
struct Nesting {
  int depth = 0;
  bool makes_tensor = false; ///< The outermost does.
  bool grows = false; ///< It makes a tensor without elements, and resizes it.
};
thread_local Nesting nesting;

bool makes_tensor(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::_to_copy",    "aten::arange",        "aten::empty",
      "aten::empty_like",  "aten::empty_strided", "aten::eye",
      "aten::full",        "aten::full_like",     "aten::linspace",
      "aten::logspace",    "aten::new_empty",     "aten::new_full",
      "aten::new_ones",    "aten::new_zeros",     "aten::normal",
      "aten::ones",        "aten::ones_like",     "aten::rand",
      "aten::rand_like",   "aten::randint",       "aten::randint_like",
      "aten::randn",       "aten::randn_like",    "aten::randperm",
      "aten::range",       "aten::scalar_tensor", "aten::to",
      "aten::zeros",       "aten::zeros_like"};
  return names.count(name) != 0;
}

bool grows(const std::string& name) {
  return name == "aten::arange" || name == "aten::range" || name == "aten::eye";
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  if (nesting.depth++ == 0) {
    nesting.makes_tensor = makes_tensor(function.name());
    nesting.grows = grows(function.name());
  }
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) {
  --nesting.depth;
}

bool is_asked_for() {
  return nesting.depth == 0 || nesting.makes_tensor;
}

/// float32 that is made of whole numbers. What is a fraction already was made
/// in a dtype that the program, or a library, has chosen.
at::ScalarType widened(at::ScalarType from, at::ScalarType to) {
  return to == at::kFloat && is_asked_for() &&
          (widen_all || at::isIntegralType(from, /*includeBool=*/true))
      ? at::kDouble
      : to;
}

/// What at::native::to does, with a wider type.
at::Tensor convert(
    const at::Tensor& self,
    at::ScalarType type,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    bool copy,
    Format format) {
  type = widened(self.scalar_type(), type);
  const bool same = self.scalar_type() == type &&
      (!layout || self.layout() == *layout) &&
      (!device || self.device() == *device) &&
      (!pin_memory || !*pin_memory) &&
      (!format || *format == at::MemoryFormat::Preserve ||
       self.suggest_memory_format() == *format);
  return same && !copy
      ? self
      : at::_to_copy(
            self, type, layout, device, pin_memory, non_blocking, format);
}

at::Tensor to_dtype(
    const at::Tensor& self,
    at::ScalarType type,
    bool non_blocking,
    bool copy,
    Format format) {
  return convert(self, type, {}, {}, {}, non_blocking, copy, format);
}

at::Tensor to_device(
    const at::Tensor& self,
    at::Device device,
    at::ScalarType type,
    bool non_blocking,
    bool copy,
    Format format) {
  return convert(self, type, {}, device, {}, non_blocking, copy, format);
}

at::Tensor to_options(
    const at::Tensor& self,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    bool copy,
    Format format) {
  return convert(
      self,
      type.value_or(self.scalar_type()),
      layout,
      device,
      pin_memory,
      non_blocking,
      copy,
      format);
}

/// Below every function that makes a tensor of options (zeros, randint, full,
/// tensor, _to_copy …). A tensor without elements that stays so keeps its dtype:
/// what reads files puts the storage that it has read into such a one.
std::optional<at::ScalarType> widened(
    std::optional<at::ScalarType> type, bool empty) {
  const bool stays_empty = empty && !(nesting.depth > 0 && nesting.grows);
  return type && *type == at::kFloat && !stays_empty && is_asked_for()
      ? at::kDouble
      : type;
}

at::Tensor make_empty(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    Format format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  type = widened(type, c10::multiply_integers(sizes) == 0);
  return at::detail::empty_cpu(
      sizes, type, layout, device, pin_memory, format);
}

at::Tensor make_empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<at::ScalarType> type,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  type = widened(type, c10::multiply_integers(sizes) == 0);
  return at::detail::empty_strided_cpu(
      sizes,
      C10_AS_INTARRAYREF_SLOW(stride),
      type,
      layout,
      device,
      pin_memory);
}

/// The options of an at::TensorMaker, which has no function that tells them: an
/// explicit instantiation may name private members.
template <auto Member>
struct Reveal {
  friend at::TensorOptions& options_of(at::TensorMaker& maker) {
    return maker.*Member;
  }
};
at::TensorOptions& options_of(at::TensorMaker& maker);
template struct Reveal<&at::TensorMaker::opts_>;

/// Set between begin_blob and end_blob where the blob had no dtype.
thread_local bool widen_blob = false;

/// LibTorch warns where a kernel takes the place of another. Here it is meant.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

} // namespace

void use_double_precision(Widening widening) {
  widen_all = widening == Widening::kAll;
  at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave)
          .scopes(
              {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const auto key :
       {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU}) {
    // Never destroyed: the kernels stay to the end of the program.
    auto* library = new torch::Library(
        torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library->impl("to.dtype", TORCH_FN(to_dtype));
    library->impl("to.device", TORCH_FN(to_device));
    library->impl("to.dtype_layout", TORCH_FN(to_options));
    if (widen_all && key == c10::DispatchKey::CPU) {
      library->impl("empty.memory_format", TORCH_FN(make_empty));
      library->impl("empty_strided", TORCH_FN(make_empty_strided));
    }
  }
}

void begin_blob(void* maker) {
  auto& options = options_of(*static_cast<at::TensorMaker*>(maker));
  widen_blob = !options.has_dtype() ||
      (widen_all && options.dtype() == caffe2::TypeMeta::Make<float>());
  if (widen_blob) {
    options = options.dtype(at::kFloat);
  }
}

void end_blob(void* tensor) {
  if (std::exchange(widen_blob, false)) {
    auto& blob = *static_cast<at::Tensor*>(tensor);
    blob = blob.to(at::kDouble);
  }
}

} // namespace accel::verify
