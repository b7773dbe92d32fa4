#pragma once

#include "multiprocess.h"

#include <c10/util/Exception.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

/// What several files of these tests ask for.
namespace accel::test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The message of the `c10::Error` that `f` throws; "no error" without one.
template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

/// All processes have failed, each with all of these in its error output.
inline void expect_all_fail(
    const std::vector<RankResult>& results,
    const std::vector<std::string>& parts) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, 1) << "process " << rank;
    EXPECT_FALSE(results[rank].timed_out) << "process " << rank;
    EXPECT_LT(results[rank].elapsed.count(), 30000);
    for (const auto& part : parts) {
      EXPECT_TRUE(contains(results[rank].error, part))
          << part << "\nis not what process " << rank
          << " says:\n" << results[rank].error;
    }
  }
}

/// Both ways that tensors take between processes of one host: through memory that
/// they share, and over Gloo.
inline std::vector<RunOptions> both_ways() {
  RunOptions over_gloo;
  over_gloo.environment["ACCEL_SHARED_MEMORY"] = "0";
  return {RunOptions(), over_gloo};
}

/// Runs `function` as one, two and three processes.
inline void run_all(const std::string& function) {
  for (const int processes : {1, 2, 3}) {
    run_and_expect_success(function, processes);
  }
}

} // namespace accel::test
