#pragma once

#include <string>
#include <vector>

namespace accel::launcher {

/// The model of each GPU that NVIDIA's driver has on this machine, whatever
/// CUDA_VISIBLE_DEVICES says. No CUDA library is loaded for it.
std::vector<std::string> gpus();

/// The value behind `key` in a file of lines such as "key : value" or
/// key="value"; empty where there is none.
std::string look_up(
    const std::string& path, const std::string& key, char separator);

} // namespace accel::launcher
