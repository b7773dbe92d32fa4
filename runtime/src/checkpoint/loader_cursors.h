#pragma once

#include <accel/data/cursor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace accel::checkpoint {

/// Where all data loaders stand, as JSON. A pass whose loop was left is over.
/// Throws for one that is in the middle of a pass where it cannot be known whether
/// its loop was left.
std::string save_loaders();

/// Whether the body of a loop over a loader works on a batch, with a guard.
bool in_loop_body();

/// Loaders that the program has not made yet, by their numbers.
using LateLoaders = std::map<int64_t, accel::detail::LoaderCursor>;

/// Compares what `save_loaders` has returned with the loaders that there are;
/// throws where a pass that was interrupted cannot go on. Returns what makes
/// them go on, and returns those that there are not.
std::function<LateLoaders()> prepare_loaders(const std::string& json);

} // namespace accel::checkpoint
