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

int fair_threads(int num_processes) {
  return std::max(1, available_cores() / num_processes);
}

std::vector<int> fair_cores(int rank, int num_processes) {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  const int count = static_cast<int>(cores.size());
  if (count <= num_processes) {
    return count == 0 ? cores : std::vector<int>{cores[rank % count]};
  }
  return {
      cores.begin() + count * rank / num_processes,
      cores.begin() + count * (rank + 1) / num_processes};
}

std::vector<std::string> environment_changes(
    const std::vector<std::string>& environment,
    const char* const* inherited) {
  std::vector<std::string> before;
  for (; *inherited; ++inherited) {
    before.emplace_back(*inherited);
  }
  std::vector<std::string> result;
  for (const std::string& entry : environment) {
    if (std::find(before.begin(), before.end(), entry) == before.end()) {
      result.push_back(entry);
    }
  }
  return result;
}

std::vector<std::string> process_environment(
    const LaunchOptions& options,
    int rank,
    const Rendezvous& rendezvous,
    const std::string& failure_note,
    const std::string& failure_news,
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
  variables["ACCEL_FAILURE_NEWS"] = failure_news;

  const std::string number = std::to_string(options.first_rank + rank);
  const std::string count = std::to_string(options.world_size);
  variables["RANK"] = number;
  variables["LOCAL_RANK"] = std::to_string(rank);
  variables["ROLE_RANK"] = number;
  variables["GROUP_RANK"] = std::to_string(options.machine_rank);
  variables["WORLD_SIZE"] = count;
  variables["LOCAL_WORLD_SIZE"] = std::to_string(options.num_processes);
  variables["ROLE_WORLD_SIZE"] = count;
  variables["GROUP_WORLD_SIZE"] = std::to_string(options.num_machines);
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = options.main_process_ip;
  variables["MASTER_PORT"] = std::to_string(rendezvous.port);
  variables["TORCHELASTIC_RESTART_COUNT"] =
      std::to_string(rendezvous.restarts);
  variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = rendezvous.run_id;

  if (options.num_threads_per_process) {
    variables["OMP_NUM_THREADS"] =
        std::to_string(*options.num_threads_per_process);
  } else if (options.world_size > 1) {
    variables.emplace(
        "OMP_NUM_THREADS", std::to_string(fair_threads(options.num_processes)));
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
  if (options.gpu_ids) {
    variables["CUDA_VISIBLE_DEVICES"] = *options.gpu_ids;
  }
  if (options.resume) {
    variables["ACCEL_RESUME"] = *options.resume;
  }
  if (options.placement_report) {
    std::string& report = variables["ACCEL_PLACEMENT_REPORT"];
    const std::string json = ".json";
    const bool file = report.size() > json.size() &&
        report.compare(report.size() - json.size(), json.size(), json) == 0;
    report = file ? report : "1";
  }
  if (options.match_single_device) {
    variables["ACCEL_MATCH_SINGLE_DEVICE"] =
        *options.match_single_device ? "1" : "0";
  }
  if (options.use_fsdp) {
    variables["ACCELERATE_USE_FSDP"] = *options.use_fsdp ? "true" : "false";
  }
  if (options.fsdp_sharding_strategy) {
    variables["FSDP_SHARDING_STRATEGY"] = *options.fsdp_sharding_strategy;
    // It would say the same in other words, or what does not count.
    variables.erase("FSDP_RESHARD_AFTER_FORWARD");
  }
  if (options.fsdp_version) {
    variables["FSDP_VERSION"] = *options.fsdp_version;
  }
  if (options.fsdp_state_dict_type) {
    variables["FSDP_STATE_DICT_TYPE"] = *options.fsdp_state_dict_type;
  }
  for (const auto& [name, value] : options.fsdp_settings) {
    variables[name] = value;
  }
  if (options.use_deepspeed) {
    variables["ACCELERATE_USE_DEEPSPEED"] =
        *options.use_deepspeed ? "true" : "false";
  }
  for (const auto& [name, value] : options.deepspeed_settings) {
    variables[name] = value;
  }
  if (options.use_megatron_lm) {
    variables["ACCELERATE_USE_MEGATRON_LM"] =
        *options.use_megatron_lm ? "true" : "false";
  }
  for (const auto& [name, value] : options.megatron_settings) {
    variables[name] = value;
  }
  if (options.use_parallelism_config) {
    variables["ACCELERATE_USE_PARALLELISM_CONFIG"] =
        *options.use_parallelism_config ? "true" : "false";
  }
  if (options.tp_plan) {
    variables["ACCEL_TP_PLAN"] = *options.tp_plan;
  }
  for (const auto& [name, value] : options.parallelism_sizes) {
    variables[name] = value;
  }
  for (const auto& [name, value] : options.axis_settings) {
    variables[name] = value;
  }
  if (options.split_batches) {
    variables["ACCEL_SPLIT_BATCHES"] = *options.split_batches ? "1" : "0";
  }

  std::vector<std::string> result;
  for (const auto& [name, value] : variables) {
    result.push_back(name + "=" + value);
  }
  return result;
}

} // namespace accel::launcher
