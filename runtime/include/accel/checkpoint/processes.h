#pragma once

#include <accel/checkpoint/directory.h>
#include <accel/export.h>

namespace accel::checkpoint {

/// The processes of this program, as its `Accelerator` has brought them
/// together, for `save_state` and `load_state`. Throws where there is no
/// Accelerator.
ACCEL_API Processes all_processes();

} // namespace accel::checkpoint
