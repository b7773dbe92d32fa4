#pragma once

#include "distributed/axis.h"

#include <cstdint>
#include <string>

namespace accel::detail {

/// An axis that stays to the end of the program: tensors that outlive the
/// Accelerator point to it. The arguments are those of `Axis`.
distributed::Axis* new_axis(
    Communicator& processes,
    int64_t mesh,
    int64_t index,
    const std::string& name,
    int64_t further = 0,
    int64_t line = 0);

/// A number that no mesh of this program has yet.
int64_t next_mesh();

} // namespace accel::detail
