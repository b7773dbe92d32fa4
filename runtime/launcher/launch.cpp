#include "launch.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "port.h"
#include "process.h"
#include "signals.h"
#include "supervisor.h"

namespace accel::launcher {
namespace {

std::string make_run_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return "accel-" +
         std::to_string(
             std::chrono::duration_cast<std::chrono::seconds>(now).count()) +
         "-" + std::to_string(::getpid());
}

} // namespace

int launch(const LaunchOptions& options) {
  const std::string path = find_program(options.program.front());
  const Port port(options.main_process_port.value_or(0));
  Supervisor::Outcome outcome;
  {
    Supervisor supervisor(options, path, {port.number(), make_run_id()});
    outcome = supervisor.run();
  }
  if (outcome.interrupted) {
    end_by_signal(SIGINT);
  }
  return outcome.exit_code;
}

} // namespace accel::launcher
