#pragma once

#include "distributed/axis.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace accel::distributed {

/// What a fused recurrent layer has to do with the buffer that its library keeps
/// for backward, of which every process has one of its own where the layer runs
/// in parts. Such a buffer cannot be compared, nor used with whole tensors.
struct OwnBuffer {
  /// The result that is one; -1 where none is.
  int result = -1;
  /// An argument may be one.
  bool taken = false;
};
OwnBuffer own_buffer(const c10::OperatorHandle& op);

/// The axis along which the samples were cut that packed sequences with these batch
/// sizes were made of; null where they were not. Packed, they are whole: what is made
/// of all samples again can be cut anew.
Axis* axis_of_packed(const at::Tensor& batch_sizes);

} // namespace accel::distributed
