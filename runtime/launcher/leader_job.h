#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "file_descriptor.h"
#include "job.h"
#include "line_link.h"
#include "messages.h"
#include "port.h"
#include "restart_policy.h"

namespace accel::launcher {

/// The job of several hosts as host 0 leads it.
///
/// The other launchers come to its port (--main-process-port) and say who they
/// are. When all are there and agree, and can reach each other, the processes
/// are started everywhere; what fails anywhere is told to all; when all
/// processes have ended it is decided here what follows. A launcher whose
/// connection breaks is a host that is lost.
///
/// Whoever else comes to the port and does not speak as a launcher is sent
/// away, and so is a launcher that comes when its host is not waited for.
class LeaderJob : public Job {
 public:
  /// Listens. Throws `Error` (kLauncherFailed) where that is not possible.
  LeaderJob(const LaunchOptions& options, const std::string& program);
  /// Tells the others that there is nobody here any more.
  ~LeaderJob() override;

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
    /// Not all hosts are here.
    kMeeting,
    /// They try whether they can reach each other.
    kProbing,
    kRunning,
    kOver,
  };

  struct Member {
    std::unique_ptr<LineLink> link;
    Hello hello;
    /// What it could not reach; known once it has tried.
    std::optional<std::string> unreachable;
    std::optional<Report> report;
  };

  /// Somebody who has not said who he is.
  struct Visitor {
    std::unique_ptr<LineLink> link;
    Clock::time_point until;
  };

  void welcome(std::unique_ptr<LineLink> link, const Hello& hello);
  void listen_to(int machine);
  void lose(int machine);
  void meet(Attempt attempt);
  void look_whether_all_are_here();
  void probe();
  void look_whether_all_are_reached();
  void begin();
  void look_whether_all_have_finished();
  void end(const Verdict& verdict, const std::string& message);
  void refuse_all(const std::string& why);
  void tell_others(const Message& message, int except = 0);
  void note(Ending ending, int from);
  Report merged() const;
  std::vector<int> missing() const;

  const LaunchOptions& options_;
  const Hello own_;
  FileDescriptor listener_;
  RestartPolicy policy_;
  Phase phase_ = Phase::kMeeting;
  /// The one that is being prepared, or that runs.
  Attempt attempt_;
  Clock::time_point since_;
  bool remarked_ = false;
  std::string remark_;
  /// Why there is another attempt.
  std::string attempt_text_;
  /// Bound as long as the attempt needs it.
  std::optional<Port> store_port_;
  std::list<Visitor> visitors_;
  /// By machine rank.
  std::map<int, Member> members_;
  /// Lost, and here again before the others have ended.
  std::map<int, Member> returned_;
  std::optional<Report> own_report_;
  std::optional<Verdict> verdict_;
  std::vector<Ending> elsewhere_;
  /// In which order ranks have failed.
  std::map<int, int> order_;
  int stopped_ = 0;
};

} // namespace accel::launcher
