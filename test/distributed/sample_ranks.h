#pragma once

#include "sample_calls.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace accel::distributed::test {

/// Sample calls in programs that are started by themselves, one for each rank, as
/// processes on a device must be (on_device.py starts them). All make the same runs
/// in the same order, and agree after each whether somebody has failed; then they
/// go on with the next.
struct RankOptions {
  /// The file in which they meet; one that is not there yet.
  std::string store;
  int64_t rank = 0;
  int64_t world = 2;
  /// The first run that is made.
  int64_t from = 0;
  /// Only every `parts`th sample, from number `part` on.
  int64_t part = 0;
  int64_t parts = 1;
  uint64_t seed = 1;
  int64_t placements = 4;
  /// How long a run may wait for another rank.
  int64_t patience = 20;
  /// Ends when the samples are made.
  bool collect = false;
  /// Every failure is printed, not the first of each operator.
  bool all = false;
  std::function<bool(const SampleCall&)> asked_for;
  /// Calls that end the process when the samples are made, by their numbers.
  std::vector<int64_t> without;
  /// To show that failures are found: the rule of aten::sgn is "wrong", "throws" on
  /// one rank, "waits" there for a rank that does not come, has "lost" the device,
  /// or the process "exits".
  std::string break_sgn;
};

/// Makes the samples on the `device()` and runs them. Exit status: 0, 1 where
/// something was wrong or threw, 4 where the device computes nothing any more, and 5
/// where another rank does not come any more.
///
/// What it does just now stands in the file STORE.at.RANK, for who starts it again:
/// a line of fields with tabs between them,
///
///     STATE NUMBER NEXT calls placed once twice wrong threw skipped NAME ORIGIN
///
/// STATE: "sample" (NUMBER is of a call that is tried), "plain" (NEXT is the first
/// run behind this call), "run" (NUMBER is its index), "done". Rank 0 adds to the
/// file STORE.log lines "operator NAME", "bad NAME" and "skipped NAME, ORIGIN: why".
int run_as_rank(
    const RankOptions& options,
    const std::vector<std::string>& tables,
    const GoldenCalls* recorded);

} // namespace accel::distributed::test
