#pragma once

#include <functional>
#include <string>

namespace accel::checkpoint {

/// Where all data loaders stand, as JSON. A pass whose loop was left is over.
/// Throws for one that is in the middle of a pass where it cannot be known whether
/// its loop was left.
std::string save_loaders();

/// Compares what `save_loaders` has returned with the loaders that there are;
/// throws where a pass that was interrupted cannot go on. Returns what makes
/// them go on.
std::function<void()> prepare_loaders(const std::string& json);

} // namespace accel::checkpoint
