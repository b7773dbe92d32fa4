#include "double_precision.h"

#include <ATen/ATen.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <utility>

namespace accel::verify {
namespace {

using Format = std::optional<at::MemoryFormat>;

/// float32 that is made of whole numbers. What is a fraction already was made
/// in a dtype that the program, or a library, has chosen.
at::ScalarType widened(at::ScalarType from, at::ScalarType to) {
  return to == at::kFloat && at::isIntegralType(from, /*includeBool=*/true)
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

void use_double_precision() {
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
  }
}

void begin_blob(void* maker) {
  auto& options = options_of(*static_cast<at::TensorMaker*>(maker));
  widen_blob = !options.has_dtype();
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
