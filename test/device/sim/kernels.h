#pragma once

#include <ATen/core/Tensor.h>

namespace accel::sim {

/// A tensor of the host over the memory of a device, as kernels see it. It does
/// not own the memory: it may be used by what a stream does, in its order.
at::Tensor kernel_view(const at::Tensor& tensor);

} // namespace accel::sim
