#pragma once

#include <string>
#include <vector>

#include "messages.h"

namespace accel::launcher {

/// Tries to connect to all `hosts` but `own`, as the processes will; takes up
/// to five seconds for each that does not answer, and gives up after three. Empty
/// where all were reached, else what failed: "node1 cannot connect to node2 (10.0.0.3): No route to host".
std::string unreachable(const Hello& own, const std::vector<Hello>& hosts);

/// The error made of what `unreachable` has returned on several hosts.
std::string describe_unreachable(const std::string& problems);

} // namespace accel::launcher
