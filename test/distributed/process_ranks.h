#pragma once

#include <accel/distributed/device_mesh.h>

#include <cstdint>
#include <functional>

namespace accel::distributed::test {

/// Runs `body` in `world` processes, forked from this one, over memory that they
/// share: for what threads of one program cannot have for themselves, above all
/// LibTorch's default random generator. This process must not have started
/// threads of LibTorch before. Throws `Difference` or `std::runtime_error` with
/// the message of the first process that has failed.
void as_processes(
    int64_t world,
    const std::function<void(const DeviceMesh&)>& body);

} // namespace accel::distributed::test
