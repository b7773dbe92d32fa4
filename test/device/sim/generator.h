#pragma once

#include "sim.h"

#include <ATen/core/Generator.h>

namespace accel::sim {

/// As a GPU's: a seed and how far it is. A kernel takes what it needs from there,
/// so that what others draw can be skipped.
const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);

/// For a kernel that is run by the CPU: its numbers are those of this seed and
/// offset (Philox makes the seed of the CPU's), and `generator` goes on.
at::Generator draw(at::Generator generator);

} // namespace accel::sim
