#pragma once

#include <ATen/core/Tensor.h>

#include <accel/distributed/tensor.h>

namespace accel::distributed {

/// A plain tensor of the whole size whose sum over the processes is `tensor`:
/// the local tensor of a part of a sum, a shard among zeros. Undefined for a
/// tensor that is not distributed. Nothing is communicated. For tensors of one
/// mesh axis; of further axes the sum is taken first, which is collective.
at::Tensor part_of_sum(const at::Tensor& tensor);

/// Processes on the outermost axis of a distributed tensor.
int64_t axis_size_of(const at::Tensor& tensor);

} // namespace accel::distributed
