#pragma once

#include <ATen/core/Tensor.h>

#include <accel/distributed/tensor.h>

namespace accel::distributed {

/// A plain tensor of the whole size whose sum over the processes is `tensor`:
/// the local tensor of a part of a sum, a shard among zeros. Undefined for a
/// tensor that is not distributed. Nothing is communicated for tensors of one
/// mesh axis, nor for those that lie along all axes. Otherwise the sum along
/// further axes is taken first, which is collective, and only one line of processes
/// along the outermost axis has it: the others have zeros, for they hold the same
/// once more.
at::Tensor part_of_sum(const at::Tensor& tensor);

} // namespace accel::distributed
