#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "environment.h"
#include "error.h"
#include "launch_command.h"

// For tests of what `accel launch` reads and gives to its processes.
namespace accel::launcher {

using Lines = std::vector<std::string>;

/// Whatever whoever runs the tests has configured.
[[maybe_unused]] inline const bool unconfigured = [] {
  ::setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  ::unsetenv("ACCEL_CONFIG_FILE");
  return true;
}();

/// Of process 1, which inherits some from whoever launches.
inline Lines environment(
    const LaunchOptions& options, std::vector<const char*> inherited) {
  inherited.push_back(nullptr);
  return process_environment(
      options, 1, {4321, "run"}, "/note", "/news", inherited.data());
}

inline bool has(const Lines& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

/// The message of the usage error that `arguments` make.
inline std::string usage_error(const Lines& arguments) {
  try {
    parse_launch(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), kUsage);
    return error.what();
  }
  return "no error";
}

} // namespace accel::launcher
