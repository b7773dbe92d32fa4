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
#include "messages.h"
#include "process.h"

namespace accel::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSettle(500);
/// A host is lost: the connections of the processes run out at about the time at
/// which the launcher's does.
constexpr milliseconds kSettleLost(3000);
/// As long as that may those take that have noticed it and are about to say so:
/// looking up the place in the program takes seconds on a busy machine.
constexpr milliseconds kSpeak(4000);
/// How long a process that has caused others to fail may take to end.
constexpr milliseconds kCause(3000);
/// What a process that ended well has left running may go on so long, to
/// write out the rest of a pipeline.
constexpr milliseconds kLinger(2000);
constexpr milliseconds kKillAgain(50);
constexpr milliseconds kLookAgain(100);

} // namespace

Supervisor::Supervisor(const LaunchOptions& options, std::string path)
    : options_(options),
      path_(std::move(path)),
      now_(options),
      strangers_(children()),
      output_(
          options.output, options.output_directory, options.num_processes),
      start_(Clock::now()) {
  adopt_orphans();
}

Supervisor::Outcome Supervisor::run(Job& job) {
  job_ = &job;
  while (true) {
    const Verdict verdict = next_verdict();
    if (!verdict.start) {
      return conclude(verdict);
    }
    output_.message(verdict.text);
    attempt(verdict.attempt);
    flush_output();
    job.finished(report());
  }
}

Verdict Supervisor::next_verdict() {
  while (true) {
    if (auto verdict = job_->verdict()) {
      return *verdict;
    }
    if (const std::string remark = job_->remark(); !remark.empty()) {
      output_.message(remark);
    }
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    output_.append_poll(fds);
    job_->append_poll(fds);
    ::poll(fds.data(), fds.size(), static_cast<int>(kLookAgain.count()));
    while (const auto arrival = signals_.next()) {
      if (arrival->number == SIGTSTP) {
        suspend();
      } else if (asks_to_end(arrival->number)) {
        if (std::exchange(user_signal_, arrival->number) != 0) {
          std::_Exit(128 + arrival->number); // The user does not wait.
        }
        job_->stop(arrival->number);
      }
    }
    leftovers(); // Collects adopted orphans that have ended.
    output_.handle_poll(fds);
    job_->handle_poll(fds);
  }
}

void Supervisor::attempt(const Attempt& attempt) {
  const int machine = options_.machine_rank;
  now_.num_processes = attempt.processes(machine);
  now_.first_rank = attempt.first_rank(machine);
  now_.world_size = attempt.world_size();
  now_.num_machines = attempt.hosts();
  now_.machine_rank = attempt.host_number(machine);
  rendezvous_ = {attempt.port, attempt.run_id, attempt.number};
  host_ = options_.num_machines > 1 ? host_name() : "";
  output_.begin(now_.first_rank);
  workers_.clear();
  failed_.clear();
  elsewhere_.clear();
  news_.erase();
  memory_kills_ = MemoryKills();
  phase_ = Phase::kRunning;
  deadline_ = Clock::time_point::max();
  waited_for_cause_ = false;
  waited_for_words_ = false;
  ended_ = 0;
  start_ = Clock::now();
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

/// Not what stands right above, and unmixed.
std::vector<std::string> Supervisor::telling_errors(
    const Ending& ending) const {
  return now_.world_size > 1 || options_.output == OutputMode::kFiles
             ? telling_lines(
                   output_.last_errors(ending.rank - now_.first_rank))
             : std::vector<std::string>();
}

Report Supervisor::report() const {
  Report report;
  for (const Worker& worker : workers_) {
    report.endings.push_back(worker.ending);
    if (worker.ending.failed()) {
      report.endings.back().last_errors = telling_errors(worker.ending);
    }
  }
  report.user_signal = user_signal_;
  report.reader_gone = output_.reader_gone();
  return report;
}

void Supervisor::start_processes() {
  const FileDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) {
    throw_errno("cannot open /dev/null");
  }
  for (int rank = 0; rank < now_.num_processes; ++rank) {
    const Output::Ends ends = output_.open(rank, rendezvous_.restarts > 0);
    ProcessStart start;
    if (options_.cpu_affinity) {
      start.cores = fair_cores(rank, now_.num_processes);
    }
    start.path = path_;
    start.arguments = options_.program;
    Note note;
    start.environment = process_environment(
        now_, rank, rendezvous_, note.path(), news_.path(), environ);
    const bool reads = now_.first_rank + rank == 0;
    start.standard_input = reads ? input_.open() : nothing.get();
    start.standard_output = ends.standard_output.get();
    start.standard_error = ends.standard_error.get();
    const pid_t pid = start_process(start, signals_);
    if (reads) {
      input_.started();
    }
    guardian_.announce_group(pid);
    workers_.push_back(
        {Ending::of_running(now_.first_rank + rank, pid, host_),
         true,
         std::move(note)});
  }
}

void Supervisor::attend() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  output_.append_poll(fds);
  job_->append_poll(fds);
  input_.append_poll(fds);
  const Clock::time_point wake_up = std::min(deadline_, output_.deadline());
  Clock::duration timeout = wake_up - Clock::now();
  const bool look_again =
      all_ended() || job_->needs_time() || input_.needs_time();
  if (look_again) {
    // What is left need not be a child of ours, so nothing would wake us.
    timeout = std::min<Clock::duration>(timeout, kLookAgain);
  }
  const auto wait = std::chrono::ceil<milliseconds>(timeout).count();
  ::poll(
      fds.data(),
      fds.size(),
      wake_up == Clock::time_point::max() && !look_again
          ? -1
          : static_cast<int>(std::clamp<int64_t>(wait, 0, 1000000)));
  while (const auto arrival = signals_.next()) {
    handle_signal(*arrival);
  }
  output_.handle_poll(fds);
  job_->handle_poll(fds);
  input_.handle_poll(fds);
  tell_others();
  hear_of_others();
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
    job_->stop(signal);
  }
  stop(signal);
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
  if (!ending.failed() || ending.exit_code() == kStoppedAfterSaving ||
      ending.asked) {
    return;
  }
  // 137, too: so a shell ends that has started what was killed.
  if (ending.exit_code() == 128 + SIGKILL) {
    ending.memory = memory_kills_.explain();
  }
  settle(ending);
  failed_.push_back(ending);
}

void Supervisor::settle(const Ending& ending) {
  // What was waited for has come.
  const bool cause = waited_for_cause_ && ending.note.empty();
  if (phase_ == Phase::kRunning || (phase_ == Phase::kSettling && cause)) {
    enter(
        Phase::kSettling,
        ending.code == Ending::kLost ? kSettleLost : kSettle);
  }
}

void Supervisor::tell_others() {
  if (failed_.empty()) {
    return;
  }
  // What they have said before they ended need not have been read yet.
  std::vector<pollfd> fds;
  output_.append_poll(fds);
  ::poll(fds.data(), fds.size(), 0);
  output_.handle_poll(fds);
  for (Ending& ending : failed_) {
    ending.last_errors = telling_errors(ending);
    spread(ending);
    job_->failed(ending);
  }
  failed_.clear();
}

void Supervisor::spread(const Ending& ending) {
  if (!ending.note.empty() || !news_.read().empty()) {
    return;
  }
  std::string text = "rank " + std::to_string(ending.rank) +
                     (ending.host.empty() ? "" : " on " + ending.host) + ": " +
                     ending.describe();
  if (ending.code != CLD_EXITED && ending.status != SIGABRT &&
      ending.code != Ending::kLost) {
    news_.say(text);
    return;
  }
  const auto& lines = ending.last_errors;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (line->front() != '(') { // How many stack frames there were.
      text += ": " + *line;
      break;
    }
  }
  news_.say(text);
}

void Supervisor::hear_of_others() {
  for (const Ending& ending : job_->failed_elsewhere()) {
    elsewhere_.push_back(ending);
    spread(ending);
    settle(ending);
  }
  const int signal = job_->stopped_elsewhere();
  if (signal != 0 && user_signal_ == 0) {
    user_signal_ = signal;
    stop(signal);
  }
}

bool Supervisor::only_consequences() const {
  const auto follows = [](const Ending& ending) {
    return !ending.failed() || !ending.note.empty();
  };
  return std::all_of(
             workers_.begin(),
             workers_.end(),
             [&](const Worker& w) { return w.running || follows(w.ending); }) &&
         std::all_of(elsewhere_.begin(), elsewhere_.end(), follows);
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
      stop(SIGTERM);
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

void Supervisor::stop(int signal) {
  if (phase_ < Phase::kStopping) {
    enter(
        Phase::kStopping,
        std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(options_.grace_period)));
  }
  ask_to_end(signal);
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

Supervisor::Outcome Supervisor::conclude(const Verdict& verdict) {
  Outcome outcome{
      verdict.exit_code,
      user_signal_ == SIGINT && verdict.exit_code == 128 + SIGINT};
  output_.message(verdict.text);
  if (const std::string lost = output_.lost(); !lost.empty()) {
    output_.message("output was lost: " + lost);
    outcome.exit_code =
        outcome.exit_code == 0 ? kLauncherFailed : outcome.exit_code;
  }
  flush_output();
  return outcome;
}

} // namespace accel::launcher
