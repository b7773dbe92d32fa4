#include "member_job.h"

#include <utility>

#include "error.h"
#include "reach.h"
#include "restart_policy.h"
#include "signals.h"
#include "sockets.h"

namespace accel::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTryAgain(200);
/// One try; signals wait for so long.
constexpr double kOneTry = 1;
/// After so long it is said who is waited for.
constexpr std::chrono::seconds kLeaderPatience(10);
constexpr size_t kLongestVerdict = size_t{64} << 20;

} // namespace

MemberJob::MemberJob(const LaunchOptions& options, const std::string& program)
    : options_(options),
      own_(own_hello(options, program)),
      probed_(listen_everywhere(0)),
      since_(Clock::now()),
      next_try_(since_) {
  if (!probed_) {
    throw_errno("cannot listen on any port");
  }
  own_.port = port_of(probed_.get());
  look_for_leader();
}

void MemberJob::look_for_leader() {
  const auto now = Clock::now();
  const std::string where = options_.main_process_ip + ":" +
                            std::to_string(*options_.main_process_port);
  // Who has been welcomed learns from host 0 when it gives up.
  if (!welcome_ &&
      now - since_ >= std::chrono::duration<double>(options_.start_timeout)) {
    end(kLauncherFailed,
        link_ ? "the launcher at " + where +
                    " has not answered within " +
                    std::to_string(static_cast<int>(options_.start_timeout)) +
                    " s (--start-timeout). Perhaps it is not accel launch that "
                    "listens there; look, or choose another "
                    "--main-process-port"
              : "found nobody at " + where +
                    " (--main-process-ip, --main-process-port) within " +
                    std::to_string(static_cast<int>(options_.start_timeout)) +
                    " s (--start-timeout): " + why_ +
                    ". Has accel launch been called with --machine-rank 0, "
                    "and is this the address of its host? Look at its output");
    return;
  }
  if (!remarked_ && now - since_ >= kLeaderPatience) {
    remarked_ = true;
    remark_ = link_ ? "waiting for the launcher at " + where + " to begin"
                    : "waiting for accel launch with --machine-rank 0 at " +
                          where + ": " + why_;
  }
  if (link_ || now < next_try_) {
    return;
  }
  FileDescriptor socket = connect_to(
      options_.main_process_ip, *options_.main_process_port, kOneTry, why_);
  next_try_ = Clock::now() + kTryAgain;
  if (socket) {
    link_ = std::make_unique<LineLink>(std::move(socket), kLongestVerdict);
    own_.address = link_->own_address();
    send({"hello", "", 0, {own_}, {}, {}, {}});
  }
}

void MemberJob::append_poll(std::vector<pollfd>& fds) const {
  if (link_ && link_->open()) {
    fds.push_back(
        {link_->fd(),
         static_cast<short>(link_->pending() ? POLLIN | POLLOUT : POLLIN),
         0});
  }
}

void MemberJob::handle_poll(const std::vector<pollfd>& fds) {
  if (phase_ == Phase::kOver) {
    return;
  }
  if (link_) {
    link_->flush();
    link_->read();
    while (const auto line = link_->next()) {
      if (const auto message = from_line(*line)) {
        obey(*message);
      }
    }
    if (!link_->open() && phase_ != Phase::kOver && !leader_lost_) {
      lose_leader(link_->reason());
    }
  }
  if (phase_ == Phase::kMeeting) {
    look_for_leader();
  }
}

void MemberJob::obey(const Message& message) {
  if (message.name == "welcome") {
    welcome_ = true;
  } else if (message.name == "refused" && phase_ == Phase::kMeeting) {
    end(kLauncherFailed, message.text);
  } else if (message.name == "refused") {
    lose_leader(message.text);
  } else if (message.name == "reach") {
    send({"reached", unreachable(own_, message.hosts), 0, {}, {}, {}, {}});
  } else if (message.name == "failed" && message.ending) {
    elsewhere_.push_back(*message.ending);
  } else if (message.name == "stop") {
    stopped_ = message.signal;
  } else if (message.name == "verdict" && message.verdict) {
    const Verdict& verdict = *message.verdict;
    const int processes = verdict.attempt.processes(options_.machine_rank);
    if (verdict.start &&
        (verdict.attempt.shares.empty() || processes < 0 ||
         processes > options_.num_processes)) {
      end(kLauncherFailed,
          "the launcher on host 0 asks for " + std::to_string(processes) +
              " processes here, where " +
              std::to_string(options_.num_processes) +
              " were asked for; is it accel launch?");
      return;
    }
    verdict_ = message.verdict;
    phase_ = verdict_->start ? Phase::kRunning : Phase::kOver;
    attempt_ = verdict_->attempt;
    elsewhere_.clear();
    report_.reset();
  }
}

void MemberJob::lose_leader(const std::string& why) {
  why_ = why;
  if (phase_ == Phase::kMeeting) {
    welcome_ = false;
    link_.reset(); // It may be about to be started again.
    return;
  }
  leader_lost_ = true;
  Ending ending = Ending::of_running(0, 0, attempt_.shares.front().host);
  ending.code = Ending::kLost;
  ending.last_errors = {why};
  elsewhere_.push_back(ending);
  if (phase_ == Phase::kFinished) {
    finished(*report_);
  }
}

void MemberJob::failed(const Ending& ending) {
  send({"failed", "", 0, {}, ending, {}, {}});
}

void MemberJob::finished(const Report& report) {
  report_ = report;
  phase_ = Phase::kFinished;
  if (!leader_lost_) {
    send({"finished", "", 0, {}, {}, report, {}});
    return;
  }
  const Ending* cause = find_cause(report.endings);
  end(kLauncherFailed,
      (cause ? summarize_failure(report.endings, *cause) + "\n"
             : std::string()) +
          "the launcher on " + attempt_.shares.front().host +
          " (--machine-rank 0) is lost: " + why_ +
          ". The job ends here; started again on all hosts, with --resume "
          "auto, it goes on at the newest complete checkpoint");
}

void MemberJob::end(int exit_code, const std::string& text) {
  phase_ = Phase::kOver;
  verdict_.emplace();
  verdict_->exit_code = exit_code;
  verdict_->text = text;
}

void MemberJob::stop(int signal) {
  send({"stop", "", signal, {}, {}, {}, {}});
  if (phase_ == Phase::kMeeting) {
    end(128 + signal, "stopped by " + signal_name(signal));
  }
}

void MemberJob::send(const Message& message) {
  if (link_) {
    link_->send(to_line(message));
  }
}

std::optional<Verdict> MemberJob::verdict() {
  return std::exchange(verdict_, std::nullopt);
}

std::vector<Ending> MemberJob::failed_elsewhere() {
  return std::exchange(elsewhere_, {});
}

std::string MemberJob::remark() {
  return std::exchange(remark_, "");
}

} // namespace accel::launcher
