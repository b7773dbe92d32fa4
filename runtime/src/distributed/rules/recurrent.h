#pragma once

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

} // namespace accel::distributed
