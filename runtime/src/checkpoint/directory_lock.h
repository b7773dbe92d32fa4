#pragma once

#include "checkpoint/files.h"

#include <optional>
#include <string>

namespace accel::checkpoint {

/// Marks a directory as being written by this process until the result is
/// destroyed or the process ends, however it ends. Empty where another process
/// holds it.
std::optional<Descriptor> lock_directory(const std::string& path);

/// Whether another process, or another part of this one, writes it now.
bool is_in_use(const std::string& path);

} // namespace accel::checkpoint
