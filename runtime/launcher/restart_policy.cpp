#include "restart_policy.h"

#include <algorithm>
#include <csignal>

#include "error.h"
#include "signals.h"

namespace accel::launcher {

std::string explain(const Report& report, const Ending& cause) {
  const int signal = report.user_signal;
  if (cause.asked && signal != 0 && cause.exit_code() == 128 + signal) {
    return "stopped by " + signal_name(signal);
  }
  if (cause.exit_code() == kStoppedAfterSaving) {
    return "stopped by " +
           (signal != 0 ? signal_name(signal) : std::string("a signal")) +
           " after saving (exit code 75); started again with --resume auto it "
           "goes on there";
  }
  if (cause.exit_code() == 128 + SIGPIPE && report.reader_gone) {
    return ""; // `| head` is not worth a word.
  }
  return (cause.asked && signal != 0
              ? signal_name(signal) + " was passed on to all processes\n"
              : "") +
         summarize_failure(report.endings, cause);
}

std::string explain_fewer(
    const LaunchOptions& options, int before, int now) {
  const std::string counts =
      std::to_string(now) + " of " + std::to_string(before);
  const std::string same =
      "a global batch is what it was, shared by fewer, so that the results "
      "are the same but for the last bits (sums in another order); it takes "
      "longer";
  const std::string other =
      "batches are per process, so that an optimizer step now takes " +
      counts + " of the samples, an epoch has more steps, and learning "
      "rates that were chosen for " + std::to_string(before) +
      " processes stay; a pass over the data that was under way cannot be "
      "continued, only one that begins";
  std::string text = "What changes with " + std::to_string(now) +
                     " processes instead of " + std::to_string(before) + ": ";
  if (options.split_batches == false) {
    return text + other + ".";
  }
  if (options.match_single_device) {
    return text + (*options.match_single_device ? same : other) + ".";
  }
  return text +
         "in a program with match_single_device (and without "
         "split_batches(false)) " +
         same + ". In any other " + other + ".";
}

std::string RestartPolicy::leave_out_lost_hosts(
    const Attempt& attempt, const Report& report, Attempt& next) const {
  std::string why;
  int left = attempt.world_size();
  for (Share& share : next.shares) {
    const bool lost = options_.min_processes > 0 &&
        share.processes > 0 &&
        std::any_of(
            report.endings.begin(),
            report.endings.end(),
            [&](const Ending& ending) {
              return ending.code == Ending::kLost &&
                     attempt.machine_of(ending.rank) == share.machine;
            });
    if (lost && left - share.processes >= options_.min_processes) {
      left -= share.processes;
      why += (why.empty() ? "" : ", ") + share.host + " is lost";
      share.processes = 0;
    }
  }
  return why;
}

Verdict RestartPolicy::after(const Attempt& attempt, const Report& report) {
  Verdict verdict;
  const Ending* cause = find_cause(report.endings);
  if (!cause) {
    return verdict;
  }
  verdict.exit_code = cause->exit_code();
  verdict.text = explain(report, *cause);
  // What the user has ended stays ended, and so does what nobody listens to.
  if (report.user_signal != 0 || report.reader_gone ||
      verdict.exit_code == kStoppedAfterSaving ||
      attempt.number >= options_.max_restarts) {
    return verdict;
  }
  verdict.start = true;
  verdict.attempt = attempt;
  verdict.attempt.number = attempt.number + 1;
  const int before = attempt.world_size();
  std::string why = leave_out_lost_hosts(attempt, report, verdict.attempt);
  const int machine = attempt.machine_of(cause->rank);
  const int local_rank = cause->rank - attempt.first_rank(machine);
  if (why.empty() && options_.min_processes > 0 &&
      cause->code != Ending::kLost && machine == last_machine_ &&
      local_rank == last_local_rank_ && before > options_.min_processes) {
    for (Share& share : verdict.attempt.shares) {
      // Process 0 has to be on host 0, which is known to all.
      if (share.machine == machine &&
          (machine != 0 || share.processes > 1)) {
        --share.processes;
        why = "rank " + std::to_string(cause->rank) +
              (cause->host.empty() ? "" : " on " + cause->host) +
              " has failed first twice in a row";
      }
    }
  }
  last_machine_ = why.empty() ? machine : -1;
  last_local_rank_ = local_rank;
  const int now = verdict.attempt.world_size();
  verdict.text +=
      std::string("\nstarting ") +
      (now < before ? std::to_string(now) + " processes instead of " +
                          std::to_string(before) + ", since " + why +
                          " and --min-processes " +
                          std::to_string(options_.min_processes) +
                          " allows it"
                    : "all processes again") +
      " (restart " + std::to_string(verdict.attempt.number) + " of at most " +
      std::to_string(options_.max_restarts) +
      (options_.resume == "auto"
           ? ", from the newest complete checkpoint)"
           : ", from the beginning: --resume auto was not asked for)") +
      (now < before ? "\n" + explain_fewer(options_, before, now) : "");
  return verdict;
}

} // namespace accel::launcher
