#pragma once

#include "core/environment.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace accel::detail {

/// Before the processes connect with each other: sees that their ranks are
/// unique and that they were told the same number of processes, have the same
/// accel and, on several hosts, the same program. Every process must call it
/// with a store of its own meeting. Throws `c10::Error` that names the hosts,
/// the values and the remedy.
void introduce(c10d::Store& store, const Environment& environment);

} // namespace accel::detail
