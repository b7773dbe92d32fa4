#pragma once

// What the families of kernels share.

#include "sim.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

namespace accel::sim {

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

/// A tensor of the host over memory that it does not own, with the sizes of
/// `tensor`.
at::Tensor borrowed(const at::Tensor& tensor, void* base);

/// What CPU kernels are called with: no autograd, no other keys.
struct KernelMode {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// Of tensors that are not dense (layouts.cpp): `layout_view` is what
// `kernel_view` is, `layout_on_device` a copy of one of the host's, whose dense
// parts `dense_on_device` copies, and `replace_parts` gives a sparse tensor what
// another one consists of.
bool is_dense(const at::Tensor& tensor);
c10::DispatchKey host_key(const at::Tensor& tensor);
at::Tensor layout_view(const at::Tensor& tensor);
at::Tensor layout_on_device(
    const at::Tensor& host,
    c10::Device device,
    const std::function<at::Tensor(const at::Tensor&)>& dense_on_device);
void replace_parts(const at::Tensor& tensor, const at::Tensor& by);

/// Any operator: the CPU's kernel, later, on the current stream (call.cpp).
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace accel::sim
