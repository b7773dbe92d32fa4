#include "leader_job.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "error.h"
#include "reach.h"
#include "signals.h"
#include "sockets.h"

namespace accel::launcher {
namespace {

/// How long somebody may take to say who he is, and how many may be about to.
constexpr std::chrono::seconds kIntroduction(10);
constexpr size_t kVisitors = 256;
/// After so long it is said who is waited for.
constexpr std::chrono::seconds kPatience(10);
/// What a launcher may say, once it is known to be one.
constexpr size_t kLongestReport = size_t{64} << 20;
/// A process that has not failed by itself is behind all that have.
constexpr int kLate = 1 << 20;

std::unordered_set<int> ready(const std::vector<pollfd>& fds) {
  std::unordered_set<int> result;
  for (const pollfd& fd : fds) {
    if (fd.revents != 0) {
      result.insert(fd.fd);
    }
  }
  return result;
}

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text;
}

} // namespace

LeaderJob::LeaderJob(const LaunchOptions& options, const std::string& program)
    : options_(options),
      own_(own_hello(options, program)),
      listener_(listen_everywhere(options.main_process_port.value_or(0))),
      policy_(options),
      since_(Clock::now()) {
  if (!listener_) {
    throw Error(
        kLauncherFailed,
        "port " + std::to_string(options.main_process_port.value_or(0)) +
            ", at which the hosts are to meet, cannot be used: " +
            std::strerror(errno) +
            ". Give another --main-process-port on all hosts");
  }
  attempt_.run_id = make_run_id();
  for (int machine = 0; machine < options.num_machines; ++machine) {
    attempt_.shares.push_back({machine, "", options.num_processes});
  }
  attempt_.shares[0].host = own_.host;
}

LeaderJob::~LeaderJob() {
  if (phase_ != Phase::kOver) {
    refuse_all("the launcher on " + own_.host + " (--machine-rank 0) has ended");
  }
  for (auto& [machine, member] : members_) {
    member.link->part(2);
  }
}

void LeaderJob::append_poll(std::vector<pollfd>& fds) const {
  const auto append = [&](const LineLink& link) {
    if (link.open()) {
      fds.push_back(
          {link.fd(),
           static_cast<short>(link.pending() ? POLLIN | POLLOUT : POLLIN),
           0});
    }
  };
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const Visitor& visitor : visitors_) {
    append(*visitor.link);
  }
  for (const auto& [machine, member] : members_) {
    append(*member.link);
  }
}

void LeaderJob::handle_poll(const std::vector<pollfd>& fds) {
  const auto events = ready(fds);
  if (events.count(listener_.get()) != 0) {
    while (FileDescriptor socket = accept_one(listener_.get())) {
      visitors_.push_back(
          {std::make_unique<LineLink>(std::move(socket)),
           Clock::now() + kIntroduction});
    }
  }
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    if (events.count(visitor->link->fd()) != 0) {
      visitor->link->read();
    }
    if (const auto line = visitor->link->next()) {
      const auto message = from_line(*line);
      if (message && message->name == "hello" && message->hosts.size() == 1 &&
          visitor->link->open()) {
        welcome(std::move(visitor->link), message->hosts[0]);
      }
      visitor = visitors_.erase(visitor);
    } else if (
        !visitor->link->open() || Clock::now() >= visitor->until ||
        visitors_.size() > kVisitors) {
      visitor = visitors_.erase(visitor);
    } else {
      ++visitor;
    }
  }
  std::vector<int> machines;
  for (auto& [machine, member] : members_) {
    if (member.link->open() && events.count(member.link->fd()) != 0) {
      member.link->flush();
      member.link->read();
    }
    machines.push_back(machine);
  }
  for (int machine : machines) {
    listen_to(machine);
  }
  if (phase_ == Phase::kMeeting) {
    look_whether_all_are_here();
  }
}

void LeaderJob::welcome(std::unique_ptr<LineLink> link, const Hello& hello) {
  const auto refuse = [&](const std::string& why) {
    link->send(to_line({"refused", why, 0, {}, {}, {}, {}}));
    link->part(0.2);
  };
  const auto known = members_.find(hello.machine);
  const bool here = hello.machine == 0 ||
                    (known != members_.end() && known->second.link->open());
  const bool beginning = phase_ <= Phase::kProbing && attempt_.number == 0;
  std::string wrong = difference(own_, hello);
  if (wrong.empty() &&
      (hello.machine < 0 || hello.machine >= options_.num_machines)) {
    wrong = "there is no host " + std::to_string(hello.machine);
  }
  if (wrong.empty() && here) {
    wrong = "--machine-rank " + std::to_string(hello.machine) +
            " was given on two hosts, " +
            (hello.machine == 0 ? own_.host : known->second.hello.host) +
            " and " + hello.host + ". Give each host its own, from 0 to " +
            std::to_string(options_.num_machines - 1);
  }
  if (!wrong.empty()) {
    refuse(wrong);
    if (beginning) {
      refuse_all(wrong);
    }
    return;
  }
  const auto awaited = missing();
  link->allow(kLongestReport);
  link->send(to_line({"welcome", "", 0, {}, {}, {}, {}}));
  if (phase_ == Phase::kRunning && attempt_.number < options_.max_restarts &&
      known != members_.end()) {
    // It was lost, and the others have not all noticed yet. It waits for what
    // is decided.
    returned_[hello.machine] = {std::move(link), hello, {}, {}};
    return;
  }
  if (phase_ != Phase::kMeeting ||
      std::find(awaited.begin(), awaited.end(), hello.machine) ==
          awaited.end()) {
    refuse(
        "the job goes on without this host (--machine-rank " +
        std::to_string(hello.machine) + "), which it had lost");
    return;
  }
  for (Share& share : attempt_.shares) {
    if (share.machine == hello.machine) {
      share.host = hello.host;
    }
  }
  members_[hello.machine] = {std::move(link), hello, {}, {}};
}

void LeaderJob::listen_to(int machine) {
  Member& member = members_.at(machine);
  while (const auto line = member.link->next()) {
    const auto message = from_line(*line);
    if (!message) {
      continue;
    }
    if (message->name == "reached" && phase_ == Phase::kProbing) {
      member.unreachable = message->text;
      look_whether_all_are_reached();
    } else if (message->name == "failed" && message->ending) {
      note(*message->ending, machine);
    } else if (message->name == "stop" && stopped_ == 0) {
      stopped_ = message->signal;
      tell_others(*message, machine);
    } else if (message->name == "finished" && message->report) {
      member.report = message->report;
      look_whether_all_have_finished();
    }
  }
  if (!member.link->open() && phase_ != Phase::kOver) {
    lose(machine);
  }
}

void LeaderJob::note(Ending ending, int from) {
  if (phase_ == Phase::kRunning) {
    order_.emplace(ending.rank, static_cast<int>(order_.size()));
    tell_others({"failed", "", 0, {}, ending, {}, {}}, from);
    elsewhere_.push_back(std::move(ending));
  }
}

void LeaderJob::lose(int machine) {
  Member& member = members_.at(machine);
  if (phase_ != Phase::kRunning) {
    if (attempt_.number == 0) {
      remark_ = "the launcher on " + member.hello.host + " (--machine-rank " +
                std::to_string(machine) + ") has gone: " +
                member.link->reason();
    }
    members_.erase(machine);
    if (phase_ == Phase::kProbing) {
      phase_ = Phase::kMeeting;
    }
    return;
  }
  if (!member.report) {
    member.report.emplace();
    const int first = attempt_.first_rank(machine);
    for (int i = 0; i < attempt_.processes(machine); ++i) {
      Ending ending = Ending::of_running(first + i, 0, member.hello.host);
      ending.code = Ending::kLost;
      ending.seconds =
          std::chrono::duration<double>(Clock::now() - since_).count();
      ending.last_errors = {member.link->reason()};
      member.report->endings.push_back(ending);
      note(ending, machine);
    }
    look_whether_all_have_finished();
  }
}

std::vector<int> LeaderJob::missing() const {
  std::vector<int> result;
  for (const Share& share : attempt_.shares) {
    const auto member = members_.find(share.machine);
    if (share.machine != 0 && share.processes > 0 &&
        (member == members_.end() || !member->second.link->open())) {
      result.push_back(share.machine);
    }
  }
  return result;
}

void LeaderJob::meet(Attempt attempt) {
  attempt_ = std::move(attempt);
  phase_ = Phase::kMeeting;
  since_ = Clock::now();
  remarked_ = false;
  for (auto member = members_.begin(); member != members_.end();) {
    member->second.report.reset();
    member->second.unreachable.reset();
    member = member->second.link->open() ? std::next(member)
                                         : members_.erase(member);
  }
  for (auto& [machine, member] : std::exchange(returned_, {})) {
    welcome(std::move(member.link), member.hello);
  }
  look_whether_all_are_here();
}

void LeaderJob::look_whether_all_are_here() {
  const auto absent = missing();
  if (absent.empty()) {
    probe();
    return;
  }
  const std::string who = "--machine-rank " + join(absent) + " (of " +
                          std::to_string(options_.num_machines) + " hosts)";
  if (Clock::now() - since_ >=
      std::chrono::duration<double>(options_.start_timeout)) {
    const int seconds = static_cast<int>(options_.start_timeout);
    refuse_all(
        "nobody has called accel launch with " + who + " within " +
        std::to_string(seconds) +
        " s (--start-timeout). Does it run there, and can it reach " +
        options_.main_process_ip + ", port " +
        std::to_string(options_.main_process_port.value_or(0)) +
        ", through the firewalls?");
  } else if (!remarked_ && Clock::now() - since_ >= kPatience) {
    remarked_ = true;
    remark_ = "waiting for accel launch with " + who;
  }
}

void LeaderJob::probe() {
  phase_ = Phase::kProbing;
  Message message{"reach", "", 0, {}, {}, {}, {}};
  for (auto& [machine, member] : members_) {
    member.unreachable.reset();
    message.hosts.push_back(member.hello);
  }
  tell_others(message);
  const std::string problems = unreachable(own_, message.hosts);
  if (!problems.empty()) {
    refuse_all(describe_unreachable(problems));
    return;
  }
  look_whether_all_are_reached();
}

void LeaderJob::look_whether_all_are_reached() {
  std::string problems;
  for (const auto& [machine, member] : members_) {
    if (!member.unreachable) {
      return;
    }
    if (!member.unreachable->empty()) {
      problems += (problems.empty() ? "" : "; ") + *member.unreachable;
    }
  }
  if (problems.empty()) {
    begin();
  } else {
    refuse_all(describe_unreachable(problems));
  }
}

void LeaderJob::begin() {
  // One that also nobody has on another interface.
  store_port_.emplace(0);
  for (int i = 0; i < 20 && !listen_everywhere(store_port_->number()); ++i) {
    store_port_.emplace(0);
  }
  attempt_.port = store_port_->number();
  phase_ = Phase::kRunning;
  since_ = Clock::now();
  own_report_.reset();
  elsewhere_.clear();
  order_.clear();
  Verdict verdict;
  verdict.start = true;
  verdict.attempt = attempt_;
  verdict.text = std::exchange(attempt_text_, "");
  tell_others({"verdict", "", 0, {}, {}, {}, verdict});
  verdict_ = std::move(verdict);
}

void LeaderJob::failed(const Ending& ending) {
  if (phase_ == Phase::kRunning) {
    order_.emplace(ending.rank, static_cast<int>(order_.size()));
    tell_others({"failed", "", 0, {}, ending, {}, {}});
  }
}

void LeaderJob::finished(const Report& report) {
  own_report_ = report;
  look_whether_all_have_finished();
}

Report LeaderJob::merged() const {
  Report all = *own_report_;
  for (const auto& [machine, member] : members_) {
    if (!member.report) {
      continue;
    }
    const Report& report = *member.report;
    all.endings.insert(
        all.endings.end(), report.endings.begin(), report.endings.end());
    all.user_signal =
        all.user_signal != 0 ? all.user_signal : report.user_signal;
    all.reader_gone = all.reader_gone || report.reader_gone;
  }
  std::sort(
      all.endings.begin(),
      all.endings.end(),
      [](const Ending& a, const Ending& b) { return a.rank < b.rank; });
  for (Ending& ending : all.endings) {
    const auto order = order_.find(ending.rank);
    ending.order =
        order != order_.end() ? order->second : kLate + ending.order;
  }
  return all;
}

void LeaderJob::look_whether_all_have_finished() {
  if (phase_ != Phase::kRunning || !own_report_) {
    return;
  }
  for (const auto& [machine, member] : members_) {
    if (!member.report) {
      return;
    }
  }
  Report all = merged();
  if (find_cause(all.endings)) {
    // A host that was lost after its processes had ended is not to be had for
    // another attempt either, but it is not to blame.
    for (Ending& ending : all.endings) {
      const auto member = members_.find(attempt_.machine_of(ending.rank));
      if (member != members_.end() && !member->second.link->open() &&
          ending.code != Ending::kLost) {
        ending.code = Ending::kLost;
        ending.asked = true;
      }
    }
  }
  Verdict verdict = policy_.after(attempt_, all);
  if (!verdict.start) {
    end(verdict, "verdict");
    return;
  }
  attempt_text_ = verdict.text;
  for (const auto& [machine, member] : members_) {
    if (!member.link->open() && verdict.attempt.processes(machine) > 0) {
      remark_ = std::exchange(attempt_text_, "") + "\nwaiting for " +
                member.hello.host + " (--machine-rank " +
                std::to_string(machine) + ") to call accel launch again";
    }
  }
  meet(std::move(verdict.attempt));
}

void LeaderJob::end(const Verdict& verdict, const std::string& message) {
  phase_ = Phase::kOver;
  tell_others(
      message == "refused"
          ? Message{"refused", verdict.text, 0, {}, {}, {}, {}}
          : Message{"verdict", "", 0, {}, {}, {}, verdict});
  for (auto& [machine, member] : returned_) {
    member.link->send(
        to_line({"refused", "the job has ended", 0, {}, {}, {}, {}}));
  }
  verdict_ = verdict;
}

void LeaderJob::refuse_all(const std::string& why) {
  Verdict verdict;
  verdict.exit_code = kLauncherFailed;
  verdict.text = why;
  end(verdict, "refused");
}

void LeaderJob::stop(int signal) {
  if (phase_ == Phase::kRunning) {
    tell_others({"stop", "", signal, {}, {}, {}, {}});
  } else if (phase_ != Phase::kOver) {
    Verdict verdict;
    verdict.exit_code = 128 + signal;
    verdict.text = "stopped by " + signal_name(signal);
    end(verdict, "verdict");
  }
}

void LeaderJob::tell_others(const Message& message, int except) {
  const std::string line = to_line(message);
  for (auto& [machine, member] : members_) {
    if (machine != except) {
      member.link->send(line);
    }
  }
}

std::optional<Verdict> LeaderJob::verdict() {
  return std::exchange(verdict_, std::nullopt);
}

std::vector<Ending> LeaderJob::failed_elsewhere() {
  return std::exchange(elsewhere_, {});
}

std::string LeaderJob::remark() {
  return std::exchange(remark_, "");
}

} // namespace accel::launcher
