#include "environment.h"

#include <sched.h>

#include <algorithm>
#include <map>
#include <thread>

namespace accel::launcher {

int available_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  // More cores than a cpu_set_t holds.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::vector<std::string> process_environment(
    const LaunchOptions& options,
    int rank,
    const Rendezvous& rendezvous,
    const std::string& failure_note,
    const char* const* inherited) {
  std::map<std::string, std::string> variables;
  for (; *inherited; ++inherited) {
    const std::string entry = *inherited;
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) {
      variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }
  // Both would point at an agent that is not ours: here process 0 hosts the
  // store, and the exit codes are enough.
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");
  variables.erase("TORCHELASTIC_ERROR_FILE");
  variables["ACCEL_FAILURE_NOTE"] = failure_note;

  const std::string number = std::to_string(rank);
  const std::string count = std::to_string(options.num_processes);
  variables["RANK"] = number;
  variables["LOCAL_RANK"] = number;
  variables["ROLE_RANK"] = number;
  variables["GROUP_RANK"] = "0";
  variables["WORLD_SIZE"] = count;
  variables["LOCAL_WORLD_SIZE"] = count;
  variables["ROLE_WORLD_SIZE"] = count;
  variables["GROUP_WORLD_SIZE"] = "1";
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(rendezvous.port);
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  variables["TORCHELASTIC_RUN_ID"] = rendezvous.run_id;

  if (options.num_threads_per_process) {
    variables["OMP_NUM_THREADS"] =
        std::to_string(*options.num_threads_per_process);
  } else if (options.num_processes > 1) {
    const int share = available_cores() / options.num_processes;
    variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, share)));
  }
  if (options.mixed_precision) {
    variables["ACCELERATE_MIXED_PRECISION"] = *options.mixed_precision;
  }
  if (options.gradient_accumulation_steps) {
    variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] =
        std::to_string(*options.gradient_accumulation_steps);
  }
  if (options.cpu) {
    variables["ACCELERATE_USE_CPU"] = "true";
  }
  if (options.match_single_device) {
    variables["ACCEL_MATCH_SINGLE_DEVICE"] =
        *options.match_single_device ? "1" : "0";
  }

  std::vector<std::string> result;
  for (const auto& [name, value] : variables) {
    result.push_back(name + "=" + value);
  }
  return result;
}

} // namespace accel::launcher
