// Tensors that are not dense. Sparse ones consist of dense tensors of the
// device; what LibTorch has for all devices serves them, and the CPU's kernels
// the rest, for which the host waits. Quantized ones have memory and a
// quantizer of the host's.

#include "allocator.h"
#include "kernels.h"

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <utility>

namespace accel::sim {
namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;

bool on_host(c10::DeviceType device) {
  return device == c10::kCPU;
}

/// A sparse tensor of these parts, which lie on `device`.
Tensor coo(
    const Tensor& like,
    c10::Device device,
    const Tensor& indices,
    const Tensor& values) {
  auto made = at::detail::make_tensor<at::SparseTensorImpl>(
      DispatchKeySet(
          on_host(device.type()) ? DispatchKey::SparseCPU
                                 : DispatchKey::SparsePrivateUse1),
      like.dtype());
  auto* impl = at::sparse::get_sparse_impl(made);
  impl->raw_resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(like.is_coalesced());
  return made;
}

Tensor compressed(
    const Tensor& like,
    c10::Device device,
    const Tensor& begins,
    const Tensor& plain,
    const Tensor& values) {
  auto made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      DispatchKeySet(
          on_host(device.type()) ? DispatchKey::SparseCsrCPU
                                 : DispatchKey::SparseCsrPrivateUse1),
      device,
      like.layout(),
      like.dtype());
  at::sparse_csr::get_sparse_csr_impl(made)->set_member_tensors(
      begins, plain, values, like.sizes());
  return made;
}

Tensor quantized(const Tensor& like, c10::Storage storage, DispatchKey key) {
  auto made = at::detail::make_tensor<at::QTensorImpl>(
      std::move(storage),
      DispatchKeySet(key),
      like.dtype(),
      at::get_qtensorimpl(like)->quantizer());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(
      like.sizes(), like.strides(), like.storage_offset());
  return made;
}

/// `tensor` with `part(t)` for each dense tensor that it consists of.
template <typename Part>
Tensor with_parts(const Tensor& tensor, c10::Device device, const Part& part) {
  if (tensor.layout() == c10::kSparse) {
    return coo(tensor, device, part(tensor._indices()), part(tensor._values()));
  }
  const auto [begins, plain] =
      at::sparse_csr::getCompressedPlainIndices(tensor);
  return compressed(
      tensor, device, part(begins), part(plain), part(tensor.values()));
}

/// All bytes of a quantized tensor of the host.
Tensor bytes_of(const Tensor& tensor) {
  const auto size = static_cast<int64_t>(tensor.storage().nbytes());
  return at::empty({0}, at::kByte).set_(tensor.storage(), 0, {size}, {1});
}

} // namespace

bool is_dense(const Tensor& tensor) {
  return !tensor.defined() ||
         (tensor.layout() == c10::kStrided && !tensor.is_quantized());
}

DispatchKey host_key(const Tensor& tensor) {
  return tensor.is_quantized()              ? DispatchKey::QuantizedCPU
         : tensor.layout() == c10::kStrided ? DispatchKey::CPU
         : tensor.layout() == c10::kSparse  ? DispatchKey::SparseCPU
                                            : DispatchKey::SparseCsrCPU;
}

Tensor layout_view(const Tensor& tensor) {
  const c10::InferenceMode as_usual(false);
  if (tensor.is_quantized()) {
    return quantized(
        tensor,
        c10::Storage(
            c10::Storage::use_byte_size_t(),
            tensor.storage().nbytes(),
            c10::DataPtr(
                kernel_address(tensor.storage().unsafeGetStorageImpl()->data()),
                c10::kCPU),
            /*allocator=*/nullptr,
            /*resizable=*/false),
        DispatchKey::QuantizedCPU);
  }
  return with_parts(
      tensor, c10::kCPU, [](const Tensor& part) { return kernel_view(part); });
}

Tensor layout_on_device(
    const Tensor& host,
    c10::Device device,
    const std::function<Tensor(const Tensor&)>& dense_on_device) {
  if (host.is_quantized()) {
    return quantized(
        host,
        c10::Storage(dense_on_device(bytes_of(host)).storage()),
        DispatchKey::QuantizedPrivateUse1);
  }
  return with_parts(host, device, dense_on_device);
}

void replace_parts(const Tensor& tensor, const Tensor& by) {
  TORCH_CHECK(
      tensor.layout() == c10::kSparse && by.layout() == c10::kSparse,
      "sim: only tensors of the layout Sparse are written in place");
  auto* impl = at::sparse::get_sparse_impl(tensor);
  impl->raw_resize_(by.sparse_dim(), by.dense_dim(), by.sizes());
  impl->set_indices_and_values_unsafe(by._indices(), by._values());
  impl->set_coalesced(by.is_coalesced());
}

namespace {

void look_for_device(const Tensor& tensor, std::optional<c10::Device>& device) {
  device = device || !tensor.defined() ? device : tensor.device();
}
void look_for_device(
    const std::optional<c10::Device>& asked,
    std::optional<c10::Device>& device) {
  device = device ? device : asked;
}
template <typename Other>
void look_for_device(const Other&, std::optional<c10::Device>&) {}

/// One of LibTorch's functions, on the device of what it is given, as LibTorch
/// calls it for the devices that it knows.
template <auto function>
struct OnItsDevice;
template <
    typename Result,
    typename... Arguments,
    Result (*function)(Arguments...)>
struct OnItsDevice<function> {
  static Result call(Arguments... arguments) {
    std::optional<c10::Device> device;
    (look_for_device(arguments, device), ...);
    const c10::OptionalDeviceGuard guard(device);
    return function(std::forward<Arguments>(arguments)...);
  }
};
#define ACCEL_SIM_NATIVE(name) TORCH_FN(OnItsDevice<&at::native::name>::call)

// What looks at no value.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl(
      "_sparse_coo_tensor_with_dims", ACCEL_SIM_NATIVE(new_with_dims_sparse));
  m.impl(
      "_sparse_coo_tensor_with_dims_and_tensors",
      ACCEL_SIM_NATIVE(new_with_dims_and_tensor_sparse_symint));
  m.impl("empty.memory_format", ACCEL_SIM_NATIVE(empty_sparse));
  m.impl("empty_like", ACCEL_SIM_NATIVE(empty_like_sparse_coo));
  m.impl("_nnz", ACCEL_SIM_NATIVE(_nnz_sparse));
  m.impl("_indices", ACCEL_SIM_NATIVE(_indices_sparse));
  m.impl("_values", ACCEL_SIM_NATIVE(_values_sparse));
  m.impl("indices", ACCEL_SIM_NATIVE(indices_sparse));
  m.impl("values", ACCEL_SIM_NATIVE(values_sparse));
  m.impl("sparse_dim", ACCEL_SIM_NATIVE(sparse_dim_sparse));
  m.impl("_dimI", ACCEL_SIM_NATIVE(sparse_dim_sparse));
  m.impl("dense_dim", ACCEL_SIM_NATIVE(dense_dim_sparse));
  m.impl("_dimV", ACCEL_SIM_NATIVE(dense_dim_sparse));
  m.impl("is_coalesced", ACCEL_SIM_NATIVE(is_coalesced_sparse));
  m.impl("_coalesced_", ACCEL_SIM_NATIVE(_coalesced_sparse_));
  m.impl("sparse_resize_", ACCEL_SIM_NATIVE(sparse_resize_));
  m.impl(
      "sparse_resize_and_clear_", ACCEL_SIM_NATIVE(sparse_resize_and_clear_));
  m.impl("copy_sparse_to_sparse_", ACCEL_SIM_NATIVE(copy_sparse_));
  m.impl("copy_", ACCEL_SIM_NATIVE(copy_sparse_wrapper_));
  m.impl("clone", ACCEL_SIM_NATIVE(clone_sparse));
  m.impl("zero_", ACCEL_SIM_NATIVE(zero_sparse_));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_nnz", ACCEL_SIM_NATIVE(_nnz_sparse_csr));
  m.impl("crow_indices", ACCEL_SIM_NATIVE(crow_indices_sparse_csr));
  m.impl("col_indices", ACCEL_SIM_NATIVE(col_indices_sparse_csr));
  m.impl("ccol_indices", ACCEL_SIM_NATIVE(ccol_indices_sparse_csr));
  m.impl("row_indices", ACCEL_SIM_NATIVE(row_indices_sparse_csr));
  m.impl("values", ACCEL_SIM_NATIVE(values_sparse_csr));
  m.impl("sparse_dim", ACCEL_SIM_NATIVE(sparse_dim_sparse_csr));
  m.impl("dense_dim", ACCEL_SIM_NATIVE(dense_dim_sparse_csr));
}

#undef ACCEL_SIM_NATIVE

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}

} // namespace
} // namespace accel::sim
