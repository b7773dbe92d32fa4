#pragma once

#include <string>
#include <vector>

#include "attempt.h"
#include "launch_options.h"

namespace accel::launcher {

/// Decides what follows when all processes of an attempt have ended: the end of
/// the job, or another attempt, with fewer processes where that was allowed
/// (--min-processes) and
///  - a host is gone, or
///  - the same process has failed first in two attempts in a row.
class RestartPolicy {
 public:
  explicit RestartPolicy(const LaunchOptions& options) : options_(options) {}

  /// `report` has the processes of all hosts; those of a lost host ended as
  /// Ending::kLost. The verdict's attempt has no port yet.
  Verdict after(const Attempt& attempt, const Report& report);

 private:
  /// Returns why `next` is smaller than `attempt`; empty where it is not.
  std::string leave_out_lost_hosts(
      const Attempt& attempt, const Report& report, Attempt& next) const;

  const LaunchOptions& options_;
  /// Which process failed first in the last attempt: its machine, and its
  /// number there.
  int last_machine_ = -1;
  int last_local_rank_ = -1;
};

/// What became of the job, for people; empty where nothing is worth a word.
/// `cause` is one of the report's endings.
std::string explain(const Report& report, const Ending& cause);

/// What a job that goes on with `now` of `before` processes computes, and what
/// it does not; `match_single_device` as the options say.
std::string explain_fewer(
    const LaunchOptions& options, int before, int now);

} // namespace accel::launcher
