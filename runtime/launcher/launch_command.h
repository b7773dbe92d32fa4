#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch_options.h"

namespace accel::launcher {

/// Reads the arguments behind `accel launch`, or behind `accel test`, which
/// starts two processes if nobody says how many.
///
/// Returns nothing when they asked for help, which is printed. Throws `Error`
/// (kUsage) when they make no sense.
std::optional<LaunchOptions> parse_launch(
    const std::vector<std::string>& arguments,
    const std::string& command_name = "launch");

} // namespace accel::launcher
