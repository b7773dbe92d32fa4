#pragma once

#include "distributed/part.h"

namespace accel::distributed {

/// Whether this process's part of `tensor`, along all axes, is a view of the memory of
/// `whole`, which it was cut from, and no copy of it.
ACCEL_API bool lies_in(const at::Tensor& tensor, const at::Tensor& whole);

} // namespace accel::distributed
