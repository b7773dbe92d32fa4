#pragma once

#include "settings.h"

namespace accel::launcher {

/// Everything that `accel launch` can be told, with the options' help.
void add_launch_settings(Settings& settings);

} // namespace accel::launcher
