#pragma once

#include "distributed/axis.h"

#include <accel/distributed/device_mesh.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace accel::distributed::test {

/// Runs `body` as `world` processes would, each a thread of this program with a
/// mesh of one axis over all of them. Thousands of small collectives take
/// milliseconds, which real processes would need seconds for. Throws what the
/// first thread that failed has thrown; threads that wait for it then stop, too.
///
/// Every thread has a random generator state of its own only where it makes one;
/// LibTorch's default generator is the program's: draw what all need before.
void as_ranks(int64_t world, const std::function<void(const DeviceMesh&)>& body);

/// The same on a mesh of several axes, whose sizes multiply to the number of
/// threads.
void as_mesh(
    const std::vector<int64_t>& sizes,
    const std::function<void(const DeviceMesh&)>& body);

} // namespace accel::distributed::test
