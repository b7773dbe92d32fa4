// Kernels that make memory, look at it, or copy it.

#include "allocator.h"
#include "kernels.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

namespace accel::sim {
namespace {

using at::Tensor;

Tensor empty_memory_format(
    c10::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(
      c10::layout_or_default(layout) == c10::kStrided &&
          !c10::pinned_memory_or_default(pin_memory),
      "sim: only dense tensors lie on devices, and only the CPU's are pinned");
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(
      size,
      &device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype),
      format);
}

Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> /*layout*/,
    std::optional<c10::Device> device,
    std::optional<bool> /*pin_memory*/) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(
      size,
      stride,
      &device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

const Tensor& resize_(
    const Tensor& self,
    c10::IntArrayRef size,
    std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format && *format != c10::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  const auto bytes =
      static_cast<size_t>(self.storage_offset() + self.numel()) * self.itemsize();
  if (bytes > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(
        self.storage(), bytes);
  }
  return self;
}

Tensor& set_storage_offset_(
    Tensor& self,
    c10::Storage storage,
    int64_t offset,
    c10::IntArrayRef size,
    c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  std::vector<int64_t> strides = stride.vec();
  if (strides.empty()) {
    strides.resize(size.size());
    int64_t next = 1;
    for (size_t i = size.size(); i-- > 0;) {
      strides[i] = next;
      next *= std::max<int64_t>(size[i], 1);
    }
  }
  impl->set_sizes_and_strides(size, strides, offset);
  return self;
}

Tensor& set_storage_(Tensor& self, c10::Storage storage) {
  const auto size = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage_offset_(self, std::move(storage), 0, {size}, {1});
}

Tensor& set_tensor_(Tensor& self, const Tensor& source) {
  return set_storage_offset_(
      self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor host_view(const Tensor& tensor) {
  return borrowed(tensor, tensor.storage().mutable_data());
}

Tensor copy_from(const Tensor& self, const Tensor& target, bool non_blocking) {
  const auto copy = [](const Tensor& from, const Tensor& to) {
    return [from, to]() mutable {
      const KernelMode mode;
      to.copy_(from);
    };
  };
  if (on_device(self) && on_device(target)) {
    auto& from = queue(current_stream(self.device().index()));
    auto& to = queue(current_stream(target.device().index()));
    check_device(self.device().index());
    check_device(target.device().index());
    order(to, to.given(), from);
    const auto number =
        from.push("copy_", copy(kernel_view(self), kernel_view(target)));
    order(from, number, to);
  } else if (on_device(target)) {
    const auto stream = current_stream(target.device().index());
    check_device(target.device().index());
    if (non_blocking && self.is_pinned()) {
      queue(stream).push(
          "copy_", copy(host_view(self), kernel_view(target)), /*late=*/true);
      note_use_of_pinned(self.storage().data(), stream);
    } else {
      // The driver copies what is not pinned before it returns.
      queue(stream).push("copy_", copy(self.clone(), kernel_view(target)));
    }
  } else {
    const auto stream = current_stream(self.device().index());
    check_device(self.device().index());
    const bool late = non_blocking && target.is_pinned();
    const auto number = queue(stream).push(
        "copy_", copy(kernel_view(self), host_view(target)), late);
    if (late) {
      note_use_of_pinned(target.storage().data(), stream);
    } else {
      queue(stream).wait(number);
      check_device(self.device().index());
    }
  }
  return target;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  synchronize(current_stream(self.device().index()));
  return kernel_view(self).item();
}

void record_stream(Tensor& self, c10::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

/// `Module::to` puts a parameter's new tensor into the old one, which LibTorch
/// allows between the devices that it knows.
bool has_compatible_type(const Tensor& self, const Tensor& from) {
  return self.layout() == at::kStrided && from.layout() == at::kStrided;
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_type));
}

// Copies look at these bits themselves (`borrowed`); LibTorch's way to resolve
// them is a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("record_stream", TORCH_FN(record_stream));
}

} // namespace
} // namespace accel::sim
