#pragma once

#include "hardware.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace accel::sim {

c10::DeviceAllocator& device_allocator();

/// Of the host, of the kind that devices reach by themselves.
c10::Allocator& pinned_allocator();
bool is_pinned(const void* address);
/// The memory is not given to anybody else before the stream has done what it
/// was given until now.
void note_use_of_pinned(const void* address, c10::Stream stream);

} // namespace accel::sim
