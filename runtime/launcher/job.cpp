#include "job.h"

#include <unistd.h>

#include <utility>

#include "leader_job.h"
#include "member_job.h"
#include "port.h"
#include "restart_policy.h"

namespace accel::launcher {
namespace {

/// All processes run on this host.
class LocalJob : public Job {
 public:
  explicit LocalJob(const LaunchOptions& options)
      : port_(options.main_process_port.value_or(0)), policy_(options) {
    verdict_.emplace();
    verdict_->start = true;
    verdict_->attempt = {
        0, port_.number(), make_run_id(), {{0, "", options.num_processes}}};
  }

  std::optional<Verdict> verdict() override {
    if (verdict_ && verdict_->start) {
      attempt_ = verdict_->attempt;
    }
    return std::exchange(verdict_, std::nullopt);
  }

  void finished(const Report& report) override {
    verdict_ = policy_.after(attempt_, report);
  }

 private:
  const Port port_;
  RestartPolicy policy_;
  Attempt attempt_;
  std::optional<Verdict> verdict_;
};

} // namespace

std::string make_run_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return "accel-" +
         std::to_string(
             std::chrono::duration_cast<std::chrono::seconds>(now).count()) +
         "-" + std::to_string(::getpid());
}

std::unique_ptr<Job> make_job(
    const LaunchOptions& options, const std::string& program) {
  if (options.num_machines == 1) {
    return std::make_unique<LocalJob>(options);
  }
  if (options.machine_rank == 0) {
    return std::make_unique<LeaderJob>(options, program);
  }
  return std::make_unique<MemberJob>(options, program);
}

} // namespace accel::launcher
