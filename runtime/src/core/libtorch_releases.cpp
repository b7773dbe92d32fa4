#include "core/libtorch_releases.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#define ACCEL_LIBTORCH_BEFORE(major, minor) \
  (TORCH_VERSION_MAJOR < (major) ||         \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR < (minor)))

namespace accel::detail {

c10d::TCPStoreOptions store_options() {
  c10d::TCPStoreOptions options;
#if ACCEL_LIBTORCH_BEFORE(2, 8)
  // Its server over libuv opens sockets itself; the older one takes them over.
  options.useLibUV = false;
#endif
  return options;
}

void empty_device_caches() {
// The allocators of 2.7 and 2.8 have no common way to empty them.
#if !ACCEL_LIBTORCH_BEFORE(2, 9)
  const auto accelerator = at::getAccelerator(/*checked=*/false);
  if (accelerator) {
    auto* allocator = at::getDeviceAllocator(*accelerator);
    if (allocator->initialized()) {
      allocator->emptyCache();
    }
  }
#endif
}

} // namespace accel::detail
