#pragma once

#include "core/environment.h"

#include <chrono>
#include <optional>

namespace accel::detail {

/// A point in time after which waiting is given up.
using Deadline = std::chrono::steady_clock::time_point;

/// Process 0: a listening socket at the master's port, to be handed to the
/// store, which owns it from then on. Throws where the port is taken.
int listen_at_master(const Environment& environment);

/// The others: returns when somebody listens at the master's address. Throws
/// where that does not happen until `deadline` or the name is unknown.
void wait_for_master(const Environment& environment, Deadline deadline);

} // namespace accel::detail
