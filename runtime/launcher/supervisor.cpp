#include "supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "descendants.h"
#include "error.h"
#include "process.h"

namespace accel::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSettle(200);
/// As long as that may those take that have noticed it and are about to say so.
constexpr milliseconds kSpeak(1500);
/// How long a process that has caused others to fail may take to end.
constexpr milliseconds kCause(3000);
/// What a process that ended well has left running may go on so long, to
/// write out the rest of a pipeline.
constexpr milliseconds kLinger(2000);
constexpr milliseconds kKillAgain(50);
constexpr milliseconds kLookAgain(100);

} // namespace

Supervisor::Supervisor(
    const LaunchOptions& options, std::string path, Rendezvous rendezvous)
    : options_(options),
      path_(std::move(path)),
      rendezvous_(std::move(rendezvous)),
      strangers_(children()),
      output_(
          options.output,
          options.output_directory,
          options.num_processes,
          options.first_rank),
      start_(Clock::now()) {
  adopt_orphans();
}

Supervisor::Outcome Supervisor::run() {
  attempt();
  for (std::string why; !(why = reason_to_restart()).empty();) {
    flush_output();
    output_.message(why);
    output_.forget();
    ++rendezvous_.restarts;
    workers_.clear();
    phase_ = Phase::kRunning;
    deadline_ = Clock::time_point::max();
    waited_for_cause_ = false;
    waited_for_words_ = false;
    ended_ = 0;
    start_ = Clock::now();
    attempt();
  }
  return conclude();
}

void Supervisor::attempt() {
  try {
    start_processes();
  } catch (const Error&) {
    enter(Phase::kKilled, kKillAgain);
    kill_all();
    wait_until_gone();
    throw;
  }
  wait_until_gone();
}

std::string Supervisor::reason_to_restart() const {
  const auto all = endings();
  const Ending* cause = find_cause(all);
  // What the user has ended stays ended, and so does what nobody listens to.
  if (!cause || user_signal_ != 0 || output_.reader_gone() ||
      cause->exit_code() == kStoppedAfterSaving ||
      rendezvous_.restarts >= options_.max_restarts) {
    return "";
  }
  return explain(all, *cause) + "\nstarting all processes again (restart " +
         std::to_string(rendezvous_.restarts + 1) + " of at most " +
         std::to_string(options_.max_restarts) +
         (options_.resume == "auto"
              ? ", from the newest complete checkpoint)"
              : ", from the beginning: --resume auto was not asked for)");
}

std::vector<Ending> Supervisor::endings() const {
  std::vector<Ending> result;
  for (const Worker& worker : workers_) {
    result.push_back(worker.ending);
  }
  return result;
}

void Supervisor::start_processes() {
  const FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) {
    throw_errno("cannot open /dev/null");
  }
  // Processes in groups of their own may not read from the terminal.
  const bool pass_input = ::isatty(STDIN_FILENO) != 1;
  for (int rank = 0; rank < options_.num_processes; ++rank) {
    const Output::Ends ends = output_.open(rank, rendezvous_.restarts > 0);
    ProcessStart start;
    if (options_.cpu_affinity) {
      start.cores = fair_cores(rank, options_.num_processes);
    }
    start.path = path_;
    start.arguments = options_.program;
    Note note;
    start.environment =
        process_environment(options_, rank, rendezvous_, note.path(), environ);
    start.standard_input =
        rank == 0 && pass_input ? STDIN_FILENO : nothing.get();
    start.standard_output = ends.standard_output.get();
    start.standard_error = ends.standard_error.get();
    const pid_t pid = start_process(start, signals_);
    guardian_.announce_group(pid);
    workers_.push_back({Ending::of_running(options_.first_rank + rank, pid), true, std::move(note)});
  }
}

void Supervisor::attend() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  output_.append_poll(fds);
  Clock::duration timeout = deadline_ - Clock::now();
  if (all_ended()) {
    // What is left need not be a child of ours, so nothing would wake us.
    timeout = std::min<Clock::duration>(timeout, kLookAgain);
  }
  const auto wait = std::chrono::ceil<milliseconds>(timeout).count();
  ::poll(
      fds.data(),
      fds.size(),
      deadline_ == Clock::time_point::max() && !all_ended()
          ? -1
          : static_cast<int>(std::clamp<int64_t>(wait, 0, 1000000)));
  while (const auto arrival = signals_.next()) {
    handle_signal(*arrival);
  }
  output_.handle_poll(fds);
  if (Clock::now() >= deadline_) {
    handle_deadline();
  }
}

void Supervisor::handle_signal(Signals::Arrival arrival) {
  const int signal = arrival.number;
  if (signal == SIGCHLD) {
    // The sender ended first; the order of the others is lost.
    for (Worker& worker : workers_) {
      if (worker.ending.pid == arrival.sender) {
        collect(worker);
      }
    }
    collect_all();
    return;
  }
  if (signal == SIGTSTP) {
    suspend();
    return;
  }
  if (signal == SIGINT && phase_ >= Phase::kStopping) {
    enter(Phase::kKilled, kKillAgain);
    kill_all();
    return;
  }
  if (!asks_to_end(signal)) {
    signal_groups(signal);
    return;
  }
  if (user_signal_ == 0) {
    user_signal_ = signal;
  }
  if (phase_ < Phase::kStopping) {
    enter(
        Phase::kStopping,
        std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(options_.grace_period)));
  }
  ask_to_end(signal);
}

void Supervisor::collect(Worker& worker) {
  siginfo_t info = {};
  // It stays a zombie until the end, so that its number, which is its
  // group's too, is not given to anybody else.
  if (!worker.running ||
      ::waitid(
          P_PID,
          static_cast<id_t>(worker.ending.pid),
          &info,
          WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return;
  }
  worker.running = false;
  Ending& ending = worker.ending;
  ending.code = info.si_code;
  ending.status = info.si_status;
  ending.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  ending.asked = phase_ >= Phase::kStopping;
  ending.order = ended_++;
  ending.note = worker.note.read();
  // What was waited for has come.
  const bool cause = waited_for_cause_ && ending.note.empty();
  if (ending.failed() && ending.exit_code() != kStoppedAfterSaving &&
      (phase_ == Phase::kRunning || (phase_ == Phase::kSettling && cause))) {
    enter(Phase::kSettling, kSettle);
  }
}

bool Supervisor::only_consequences() const {
  return std::none_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return !w.running && w.ending.failed() && w.ending.note.empty();
  });
}

bool Supervisor::somebody_speaks() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return w.running && !w.note.read().empty();
  });
}

void Supervisor::collect_all() {
  for (Worker& worker : workers_) {
    collect(worker);
  }
  leftovers(); // Collects adopted orphans that have ended.
}

void Supervisor::enter(Phase phase, Clock::duration until_deadline) {
  phase_ = phase;
  deadline_ = Clock::now() + until_deadline;
}

void Supervisor::handle_deadline() {
  switch (phase_) {
    case Phase::kRunning:
      output_.message(
          "the program has ended, but left processes running; ending them");
      [[fallthrough]];
    case Phase::kSettling:
      if (!waited_for_words_ && somebody_speaks()) {
        waited_for_words_ = true;
        enter(Phase::kSettling, kSpeak);
        break;
      }
      if (!all_ended() && !waited_for_cause_ && only_consequences()) {
        waited_for_cause_ = true;
        enter(Phase::kSettling, kCause);
        break;
      }
      enter(
          Phase::kStopping,
          std::chrono::duration_cast<Clock::duration>(
              std::chrono::duration<double>(options_.grace_period)));
      ask_to_end(SIGTERM);
      break;
    case Phase::kStopping:
    case Phase::kKilled:
      enter(Phase::kKilled, kKillAgain);
      kill_all();
      break;
  }
}

void Supervisor::signal_groups(int signal) {
  for (const Worker& worker : workers_) {
    ::kill(-worker.ending.pid, signal);
  }
}

void Supervisor::ask_to_end(int signal) {
  signal_groups(signal);
  for (pid_t pid : leftovers()) {
    ::kill(pid, signal);
  }
  // One that was stopped would not notice.
  signal_groups(SIGCONT);
}

void Supervisor::kill_all() {
  signal_groups(SIGKILL);
  for (pid_t pid : leftovers()) {
    ::kill(pid, SIGKILL);
  }
}

void Supervisor::suspend() {
  signal_groups(SIGSTOP);
  ::kill(::getpid(), SIGSTOP);
  signal_groups(SIGCONT);
}

bool Supervisor::all_ended() const {
  return std::none_of(workers_.begin(), workers_.end(), [](const Worker& w) {
    return w.running;
  });
}

std::vector<pid_t> Supervisor::leftovers() {
  std::vector<pid_t> result;
  for (pid_t pid : children()) {
    const bool worker =
        std::any_of(workers_.begin(), workers_.end(), [pid](const Worker& w) {
          return w.ending.pid == pid;
        });
    const bool stranger =
        std::find(strangers_.begin(), strangers_.end(), pid) !=
        strangers_.end();
    if (!worker && !stranger && pid != guardian_.pid() && !reap(pid)) {
      result.push_back(pid);
    }
  }
  return result;
}

void Supervisor::wait_until_gone() {
  while (!all_ended()) {
    attend();
  }
  if (phase_ == Phase::kRunning) {
    enter(Phase::kRunning, kLinger);
  }
  while (!leftovers().empty()) {
    attend();
  }
  for (const Worker& worker : workers_) {
    guardian_.withdraw_group(worker.ending.pid);
    reap(worker.ending.pid);
  }
}

void Supervisor::flush_output() {
  // Nobody is left to look after: a reader that does not read is waited for
  // until the user has had enough.
  bool finished = false;
  while (!(finished = finished || output_.finish()) || !output_.flushed()) {
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    output_.append_poll(fds);
    ::poll(fds.data(), fds.size(), static_cast<int>(kLookAgain.count()));
    while (const auto arrival = signals_.next()) {
      if (asks_to_end(arrival->number)) {
        std::_Exit(128 + arrival->number);
      }
    }
    output_.handle_poll(fds);
  }
}

std::string Supervisor::explain(
    const std::vector<Ending>& endings, const Ending& cause) const {
  if (cause.asked && cause.exit_code() == 128 + user_signal_) {
    return "stopped by " + signal_name(user_signal_);
  }
  if (cause.exit_code() == kStoppedAfterSaving) {
    return "stopped by " +
           (user_signal_ != 0 ? signal_name(user_signal_)
                              : std::string("a signal")) +
           " after saving (exit code 75); started again with --resume auto it "
           "goes on there";
  }
  if (cause.exit_code() == 128 + SIGPIPE && output_.reader_gone()) {
    return ""; // `| head` is not worth a word.
  }
  // With one process its output stands right above, and unmixed.
  const bool repeat =
      endings.size() > 1 || options_.output == OutputMode::kFiles;
  return (cause.asked
              ? signal_name(user_signal_) + " was passed on to all processes\n"
              : "") +
         summarize_failure(
             endings,
             cause,
             repeat ? output_.last_errors(cause.rank - options_.first_rank)
                    : std::vector<std::string>());
}

Supervisor::Outcome Supervisor::conclude() {
  flush_output();
  Outcome outcome{0, false};
  const auto all = endings();
  if (const Ending* cause = find_cause(all)) {
    outcome.exit_code = cause->exit_code();
    outcome.interrupted = user_signal_ == SIGINT && cause->asked &&
                          outcome.exit_code == 128 + SIGINT;
    output_.message(explain(all, *cause));
  }
  if (const std::string lost = output_.lost(); !lost.empty()) {
    output_.message("output was lost: " + lost);
    outcome.exit_code =
        outcome.exit_code == 0 ? kLauncherFailed : outcome.exit_code;
  }
  flush_output();
  return outcome;
}

} // namespace accel::launcher
