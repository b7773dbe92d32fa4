#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Tests with real processes: the test executable starts itself once for each
/// rank, with torchrun's environment, and runs one registered function there.
///
///     ACCEL_RANK_FUNCTION(sums_ranks) {
///       accel::Accelerator accelerator;
///       EXPECT_EQ(..., ...); // a failure here fails the process
///       std::cout << "seen by the parent";
///     }
///     TEST(Reduce, SumsRanks) {
///       accel::test::run_and_expect_success("sums_ranks", 3);
///     }
///
/// Link accel_test_support, which has `main`. No process outlives the call.
namespace accel::test {

struct RankResult {
  /// The exit status; -1 where a signal ended the process.
  int exit_code = -1;
  /// The signal that ended the process; 0 where it exited.
  int signal = 0;
  /// It was killed because the time was up.
  bool timed_out = false;
  /// What it wrote to standard output and to standard error.
  std::string output;
  std::string error;
  std::chrono::milliseconds elapsed{0};

  bool success() const {
    return exit_code == 0;
  }
};

struct RunOptions {
  /// After which all processes that still run are killed.
  std::chrono::seconds timeout{60};
  /// Added to the environment of every process, with its rank for a '%'; nullopt
  /// removes a variable.
  std::map<std::string, std::optional<std::string>> environment;
  /// MASTER_PORT; 0 finds a free one.
  int port = 0;
};

/// Starts `world_size` processes that run `function`, waits for all of them and
/// returns their results by rank.
std::vector<RankResult> run(
    const std::string& function,
    int world_size,
    const RunOptions& options = {});

/// The same; adds a test failure with the process's output for each that did
/// not exit with 0.
std::vector<RankResult> run_and_expect_success(
    const std::string& function,
    int world_size,
    const RunOptions& options = {});

/// A port at which nobody listens at the moment.
int free_port();

/// Makes `function` known under `name`.
bool register_function(const char* name, void (*function)());

} // namespace accel::test

#define ACCEL_RANK_FUNCTION(name)                                 \
  static void name();                                             \
  [[maybe_unused]] static const bool name##_is_registered =       \
      ::accel::test::register_function(#name, &name);             \
  static void name()
