#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tolerance.h"

namespace accel::verify {

/// One more run of the migrated program, started with options of `accel launch`.
struct LaunchedRun {
  /// As the person wrote them: "-n 2 --fsdp FULL_SHARD".
  std::string text;
  std::vector<std::string> options;
  /// That they ask for.
  int processes = 1;
};

/// What `accel verify` was asked for.
struct VerifyOptions {
  std::string original;
  std::string migrated;
  std::vector<int> processes = {1, 2};
  std::vector<LaunchedRun> launched;
  /// For both programs.
  std::vector<std::string> arguments;
  bool to_double = false;
  /// Backward calls; 0: all.
  uint64_t max_steps = 0;
  /// Seconds for each run; 0: no limit.
  double timeout = 0;
  uint64_t seed = 0;
  /// Run the original twice, to know what can be compared.
  bool repeat = true;
  /// How many processes may run at the same time; 0: one per core.
  int jobs = 0;
  ToleranceOptions tolerance;
  /// The page that is written; empty: none.
  std::string report;
  /// Where the runs' folders stay; empty: they are removed.
  std::string keep;
};

} // namespace accel::verify
