#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "file_descriptor.h"
#include "job.h"
#include "line_link.h"
#include "messages.h"

namespace accel::launcher {

/// The job of several hosts as any but host 0 sees it: does what host 0 says
/// (LeaderJob), and ends where that one is lost.
class MemberJob : public Job {
 public:
  MemberJob(const LaunchOptions& options, const std::string& program);

  std::optional<Verdict> verdict() override;
  void failed(const Ending& ending) override;
  void finished(const Report& report) override;
  void stop(int signal) override;
  std::vector<Ending> failed_elsewhere() override;
  int stopped_elsewhere() const override {
    return stopped_;
  }
  std::string remark() override;
  bool needs_time() const override {
    return true;
  }
  void append_poll(std::vector<pollfd>& fds) const override;
  void handle_poll(const std::vector<pollfd>& fds) override;

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase {
    /// Host 0 has not yet said that it begins.
    kMeeting,
    kRunning,
    /// Nothing runs here any more; host 0 has not said what follows.
    kFinished,
    kOver,
  };

  void look_for_leader();
  void obey(const Message& message);
  void lose_leader(const std::string& why);
  void end(int exit_code, const std::string& text);
  void send(const Message& message);

  const LaunchOptions& options_;
  Hello own_;
  /// Others try whether they reach this host.
  FileDescriptor probed_;
  std::unique_ptr<LineLink> link_;
  /// Host 0 has answered.
  bool welcome_ = false;
  Phase phase_ = Phase::kMeeting;
  Attempt attempt_;
  Clock::time_point since_;
  Clock::time_point next_try_;
  bool remarked_ = false;
  std::string remark_;
  /// Why host 0 could not be reached, or is lost.
  std::string why_;
  bool leader_lost_ = false;
  std::optional<Report> report_;
  std::optional<Verdict> verdict_;
  std::vector<Ending> elsewhere_;
  int stopped_ = 0;
};

} // namespace accel::launcher
