#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "environment.h"
#include "guardian.h"
#include "input.h"
#include "job.h"
#include "launch_options.h"
#include "memory_kills.h"
#include "note.h"
#include "output.h"
#include "signals.h"
#include "summary.h"

namespace accel::launcher {

/// Starts the processes of this host, attends to them until the last has
/// ended, as often as the job wants that, and leaves nothing behind.
class Supervisor {
 public:
  /// `path` is the executable file of `options.program`.
  Supervisor(const LaunchOptions& options, std::string path);

  struct Outcome {
    int exit_code;
    /// Everything ended because the user pressed Ctrl-C: the launcher should
    /// end by SIGINT too, so that the shell's loop or script ends with it.
    bool interrupted;
  };

  /// Runs to the job's end. Throws `Error` when a process cannot be started;
  /// the others are gone then.
  Outcome run(Job& job);

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase {
    kRunning,
    /// A process has failed. The others get a moment to fail by themselves,
    /// so that their own message is seen, and a process that is just leaving
    /// `main` keeps its exit code.
    kSettling,
    /// The processes were asked to end.
    kStopping,
    /// They were killed.
    kKilled,
  };

  struct Worker {
    Ending ending;
    bool running;
    Note note;
  };

  /// Waits until the job knows what to do.
  Verdict next_verdict();
  /// Starts all processes of this host and attends to them until none is left.
  void attempt(const Attempt& attempt);
  void start_processes();
  void attend();
  void handle_signal(Signals::Arrival arrival);
  void collect(Worker& worker);
  /// Tells the processes here, and the other hosts, what has failed here.
  void tell_others();
  /// What the job says of other hosts.
  void hear_of_others();
  /// Writes for the processes here which one has failed, if it did by itself.
  void spread(const Ending& ending);
  /// Gives the others a moment to fail by themselves.
  void settle(const Ending& ending);
  bool only_consequences() const;
  /// A process that still runs has noticed that another one is gone.
  bool somebody_speaks() const;
  void collect_all();
  void handle_deadline();
  void enter(Phase phase, Clock::duration until_deadline);
  /// Asks the processes to end, who have the grace period for it.
  void stop(int signal);
  void ask_to_end(int signal);
  void kill_all();
  void signal_groups(int signal);
  void suspend();
  bool all_ended() const;
  /// Our running children that are none of the workers: orphans that a worker
  /// has left. Those that have ended are collected.
  std::vector<pid_t> leftovers();
  void wait_until_gone();
  std::vector<std::string> telling_errors(const Ending& ending) const;
  Report report() const;
  void flush_output();
  Outcome conclude(const Verdict& verdict);

  const LaunchOptions& options_;
  const std::string path_;
  Job* job_ = nullptr;
  /// The options with the numbers of the attempt that runs.
  LaunchOptions now_;
  Rendezvous rendezvous_;
  /// This host's name, where there are several.
  std::string host_;
  // In this order: signals are blocked before there is a thread, and the
  // guardian forks before there is one.
  Signals signals_;
  std::vector<pid_t> strangers_;
  Guardian guardian_;
  Output output_;
  Input input_;
  MemoryKills memory_kills_;
  std::vector<Worker> workers_;
  /// Of these, what has failed and has not been told to anybody.
  std::vector<Ending> failed_;
  /// Processes of other hosts that have failed.
  std::vector<Ending> elsewhere_;
  /// Says to the processes which one has failed; they read it where they have
  /// waited for it.
  Note news_;
  Clock::time_point start_;
  Phase phase_ = Phase::kRunning;
  Clock::time_point deadline_ = Clock::time_point::max();
  /// Only consequences of some failure have been seen, and its cause was
  /// given more time to show.
  bool waited_for_cause_ = false;
  /// Those that had noticed the failure were given time to say where.
  bool waited_for_words_ = false;
  int ended_ = 0;
  int user_signal_ = 0;
};

} // namespace accel::launcher
