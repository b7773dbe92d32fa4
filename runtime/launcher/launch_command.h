#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch_options.h"

namespace accel::launcher {

/// Reads the arguments behind `accel launch`.
///
/// Returns nothing when they asked for help, which is printed. Throws `Error`
/// (kUsage) when they make no sense.
std::optional<LaunchOptions> parse_launch(
    const std::vector<std::string>& arguments);

} // namespace accel::launcher
