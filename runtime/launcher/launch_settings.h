#pragma once

#include "settings.h"

#include <string>

namespace accel::launcher {

/// Why an axis of the mesh cannot have the size that `value` says; empty where it
/// can. For options, variables and configuration files.
std::string check_mesh_size(const std::string& value);

/// Everything that `accel launch` can be told, with the options' help.
void add_launch_settings(Settings& settings);

} // namespace accel::launcher
