#include <accel/distributed/device_mesh.h>

#include "core/runtime.h"

namespace accel::distributed {

DeviceMesh::DeviceMesh()
    : axes_{&accel::detail::Runtime::require().axis()} {}

} // namespace accel::distributed
