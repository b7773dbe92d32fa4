#pragma once

#include <accel/checkpoint/state_dict.h>

namespace accel::checkpoint {

/// The same values in host memory of their own, all of which goes back to the
/// system with the last of the tensors. The program waits for this, so that it
/// is done by several threads, in large pages where the system has them. Throws
/// for what a file cannot hold (`check_writable`) and where memory is short.
StateDict snapshot(const StateDict& tensors);

} // namespace accel::checkpoint
