#pragma once

#include <optional>
#include <string>
#include <vector>

#include "output.h"

namespace accel::launcher {

/// What `accel launch` was asked for. An empty optional means that the option
/// was not given: what the program or an outer environment says stays valid.
struct LaunchOptions {
  int num_processes = 1;
  std::optional<std::string> mixed_precision;
  std::optional<int> gradient_accumulation_steps;
  bool cpu = false;
  std::optional<bool> match_single_device;
  /// Empty or 0: a free one is chosen.
  std::optional<int> main_process_port;
  std::optional<int> num_threads_per_process;
  OutputMode output = OutputMode::kPrefix;
  /// For OutputMode::kFiles.
  std::string output_directory;
  /// Seconds from asking a process to end until it is killed.
  double grace_period = 10;
  /// The program and its arguments; never empty.
  std::vector<std::string> program;
};

} // namespace accel::launcher
