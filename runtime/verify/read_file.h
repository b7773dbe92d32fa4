#pragma once

#include <filesystem>
#include <string>

namespace accel::verify {

/// The bytes of a regular file, in one read: traces and models are gigabytes. Empty
/// where it cannot be read.
std::string read_file(const std::filesystem::path& path);

} // namespace accel::verify
