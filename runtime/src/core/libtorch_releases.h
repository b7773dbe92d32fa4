#pragma once

/// What LibTorch's releases have differently: all of it, so that a new release
/// is looked at in one place.

namespace c10d {
struct TCPStoreOptions;
} // namespace c10d

namespace accel::detail {

/// For a store whose server takes over a socket that listens already.
c10d::TCPStoreOptions store_options();

/// Gives the memory that device allocators keep for later back to the devices.
void empty_device_caches();

} // namespace accel::detail
