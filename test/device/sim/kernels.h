#pragma once

// What the families of kernels share.

#include "sim.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

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

/// Any operator: the CPU's kernel, later, on the current stream (call.cpp).
void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace accel::sim
