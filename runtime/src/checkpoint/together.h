#pragma once

#include <accel/checkpoint/directory.h>

#include <functional>
#include <string>
#include <vector>

namespace accel::checkpoint {

/// `run_together` for work that has a result: returns those of all processes.
std::vector<std::string> gather_results(
    const Processes& processes,
    const std::string& what,
    const std::function<std::string()>& work);

} // namespace accel::checkpoint
