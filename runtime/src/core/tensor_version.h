#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accel::detail {

/// How often a tensor has been written to in place. 0 for one of inference mode, of
/// which nobody counts it.
inline int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
}

} // namespace accel::detail
