#pragma once

/// Marks what the library offers; everything else is hidden.
#if defined(ACCEL_BUILDING_RUNTIME)
#define ACCEL_API __attribute__((visibility("default")))
#else
#define ACCEL_API
#endif
