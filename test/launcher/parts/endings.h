#pragma once

#include <csignal>

#include "restart_policy.h"
#include "summary.h"

// How a run has ended, for tests of what is said and done then.
namespace accel::launcher {

/// Process `rank` ended as the `order`th.
inline Ending exited(int rank, int status, int order) {
  Ending ending = Ending::of_running(rank, 100 + rank);
  ending.code = CLD_EXITED;
  ending.status = status;
  ending.order = order;
  return ending;
}

/// Two hosts with two processes each.
inline Attempt two_hosts() {
  return {0, 1, "run", {{0, "a", 2}, {1, "b", 2}}};
}

/// `rank` has failed, and the others have noticed.
inline Report failure_of(int rank, int world_size, int status = 3) {
  Report report;
  for (int i = 0; i < world_size; ++i) {
    report.endings.push_back(exited(i, status, i == rank ? 1 : 0));
    report.endings.back().note = i == rank ? "" : "barrier: closed";
  }
  return report;
}

} // namespace accel::launcher
