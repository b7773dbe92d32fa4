#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attempt.h"
#include "launch_options.h"

namespace accel::launcher {

/// The job of which this launcher runs a part, on one host or on several: what
/// is started, what happens elsewhere, and when it is over.
///
/// Nothing here waits: what the descriptors bring is taken by `handle_poll`.
class Job {
 public:
  virtual ~Job() = default;

  /// What to do next, once: after the start, and after each `finished`. Nothing
  /// where that is not yet known.
  virtual std::optional<Verdict> verdict() = 0;

  /// A process of this host has failed, while others may still run.
  virtual void failed(const Ending& ending) {}

  /// All processes of this host have ended.
  virtual void finished(const Report& report) = 0;

  /// The user has asked this host's part to end by this signal.
  virtual void stop(int signal) {}

  /// What has failed on other hosts since the last call.
  virtual std::vector<Ending> failed_elsewhere() {
    return {};
  }

  /// The signal by which another host was asked to end; 0 for none.
  virtual int stopped_elsewhere() const {
    return 0;
  }

  /// What there is to say about waiting, once.
  virtual std::string remark() {
    return "";
  }

  /// True where `handle_poll` has to be called without any event, too.
  virtual bool needs_time() const {
    return false;
  }
  virtual void append_poll(std::vector<pollfd>& fds) const {}
  /// To be called after each poll.
  virtual void handle_poll(const std::vector<pollfd>& fds) {}
};

/// A name for a job.
std::string make_run_id();

/// The job of one host, of host 0 of several, or of another host. Throws
/// `Error` (kLauncherFailed) where the port is taken. `program` is the file
/// that is executed. `options` must outlive it.
std::unique_ptr<Job> make_job(
    const LaunchOptions& options, const std::string& program);

} // namespace accel::launcher
