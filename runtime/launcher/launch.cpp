#include "launch.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "environment.h"
#include "job.h"
#include "port.h"
#include "process.h"
#include "signals.h"
#include "supervisor.h"

namespace accel::launcher {
namespace {

/// Left-aligned in columns.
std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      text += row[i] +
              (last ? "\n" : std::string(widths[i] - row[i].size() + 2, ' '));
    }
  }
  return text;
}

std::string quoted(const std::string& argument) {
  const bool plain =
      !argument.empty() &&
      argument.find_first_of(" \t\n\"'\\$`*?[]{}()<>|&;!#~") ==
          std::string::npos;
  if (plain) {
    return argument;
  }
  std::string text = "'";
  for (char c : argument) {
    text += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return text + "'";
}

int print_plan(const LaunchOptions& options, const std::string& path) {
  std::string command;
  for (const std::string& argument : options.program) {
    command += (command.empty() ? "" : " ") + quoted(argument);
  }
  std::vector<std::vector<std::string>> rows{
      {"program", command, path}};
  for (const PlanLine& line : options.plan) {
    rows.push_back({line.what, line.value, line.source});
  }
  std::cout << columns(rows)
            << "\nprocess " << options.first_rank << " of "
            << options.world_size
            << " would find in its environment, besides what is there now:\n";
  const auto environment = process_environment(
      options,
      0,
      {options.num_machines > 1 ? 0 : options.main_process_port.value_or(0),
       "(made at the start)"},
      "(made at the start)",
      "(made at the start)",
      environ);
  for (std::string entry : environment_changes(environment, environ)) {
    if (entry == "MASTER_PORT=0") {
      entry = "MASTER_PORT=(a free one, found at the start)";
    }
    std::cout << "  " << entry << "\n";
  }
  return 0;
}

} // namespace

int launch(const LaunchOptions& options) {
  const std::string path = find_program(options.program.front());
  if (options.dry_run) {
    return print_plan(options, path);
  }
  if (options.num_machines > 1) {
    check_main_process_ip(
        options.main_process_ip, /*is_here=*/options.machine_rank == 0);
  }
  Supervisor::Outcome outcome;
  {
    Supervisor supervisor(options, path);
    // After the guardian, which would keep its connections open.
    const auto job = make_job(options, path);
    outcome = supervisor.run(*job);
  }
  if (outcome.interrupted) {
    end_by_signal(SIGINT);
  }
  return outcome.exit_code;
}

} // namespace accel::launcher
