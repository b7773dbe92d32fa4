#pragma once

#include "checkpoint/state_files.h"

#include <string>

namespace accel::checkpoint {

/// Small files as one text, and back; tensors of bytes only.
std::string packed(const StateFiles& files);
void unpack(const std::string& text, StateFiles& files);

} // namespace accel::checkpoint
