#pragma once

#include "launch_options.h"

namespace accel::launcher {

/// Runs `accel launch`. Returns the exit code, or throws `Error`.
int launch(const LaunchOptions& options);

} // namespace accel::launcher
