#pragma once

#include <string>
#include <vector>

namespace accel::launcher {

// The smaller commands. Each takes the arguments behind its name and returns
// the exit code, or throws `Error`.

/// Asks what `accel launch` should do if not told otherwise, and writes it to
/// a file; `accel config default` asks nothing.
int config_command(const std::vector<std::string>& arguments);

/// Prints what a bug report needs.
int env_command(const std::vector<std::string>& arguments);

/// Starts the self-test, a program that the runtime has built, under `launch`.
int test_command(const std::vector<std::string>& arguments);

/// Says how much memory weights, gradients and optimizer need.
int estimate_memory_command(const std::vector<std::string>& arguments);

/// Makes one file of a model that lies in several.
int merge_weights_command(const std::vector<std::string>& arguments);

} // namespace accel::launcher
