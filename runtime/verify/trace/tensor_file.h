#pragma once

#include <string>
#include <vector>

#include "registry.h"

namespace accel::verify {

/// Writes the tensors of `entries` as a safetensors file, named by their ids
/// ("0", "1", …) and with their own dtypes. Throws `c10::Error`.
void write_tensor_file(
    const std::string& path, const std::vector<Registry::Entry*>& entries);

} // namespace accel::verify
