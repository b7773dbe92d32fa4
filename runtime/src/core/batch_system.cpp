#include "core/environment.h"
#include "core/plain_text.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace accel::detail {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

/// What a launcher calls the numbers of a process.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  /// Null where it has to be worked out.
  const char* local_world_size;
  /// Tells two launches on a host from each other.
  const char* job;
};

constexpr Names kOpenMpi{
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_NAMESPACE"};
// Variables of a step, not of the job: a batch script that starts the program
// without srun starts one process, whatever the job has.
constexpr Names kSlurm{
    "Slurm",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    nullptr,
    "SLURM_JOB_ID"};
constexpr Names kPmi{
    "MPI",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMI_JOBID"};

int64_t required(const Names& names, const char* name, int64_t most) {
  const auto value = get_environment_integer(name, 0, most);
  TORCH_CHECK(
      value.has_value(),
      "accel: this process was started by ",
      names.launcher,
      " (",
      names.rank,
      " is set), but the environment variable ",
      name,
      " is not. Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
      "MASTER_ADDR and MASTER_PORT for every process.");
  return *value;
}

/// Between 15000 and 31999, below the ports that systems give out; the same in
/// all processes of a launch, another one for the next launch.
uint16_t port_for(const Names& names) {
  uint32_t hash = 2166136261U;
  const auto mix = [&hash](const std::string& text) {
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    }
  };
  mix(get_environment(names.job).value_or(""));
  mix("." + get_environment("SLURM_STEP_ID").value_or(""));
  return static_cast<uint16_t>(15000 + hash % 17000);
}

std::string master_for(const Names& names, const Environment& environment) {
  if (environment.local_world_size == environment.world_size) {
    return "127.0.0.1";
  }
  const auto nodes = get_environment("SLURM_STEP_NODELIST");
  TORCH_CHECK(
      nodes.has_value(),
      "accel: ",
      names.launcher,
      " has started ",
      environment.world_size,
      " processes on several hosts, but does not say where process 0 runs. "
      "Set MASTER_ADDR to the name or address of its host, for instance "
      "mpirun -x MASTER_ADDR=$(hostname) ...");
  return first_host(*nodes);
}

} // namespace

int64_t tasks_of_node(const std::string& tasks_per_node, int64_t node) {
  int64_t first = 0;
  const char* text = tasks_per_node.c_str();
  while (*text != '\0') {
    char* end = nullptr;
    const int64_t tasks = std::strtoll(text, &end, 10);
    int64_t repeats = 1;
    bool good = end != text && tasks > 0;
    if (good && end[0] == '(' && end[1] == 'x') {
      const char* digits = end + 2;
      repeats = std::strtoll(digits, &end, 10);
      good = end != digits && repeats > 0 && *end == ')';
      end += good ? 1 : 0;
    }
    good = good && (*end == ',' || *end == '\0');
    if (!good) {
      break;
    }
    if (node < first + repeats) {
      return tasks;
    }
    first += repeats;
    text = *end == ',' ? end + 1 : end;
  }
  TORCH_CHECK(
      false,
      "accel: SLURM_STEP_TASKS_PER_NODE is '",
      tasks_per_node,
      "', which does not say how many processes node ",
      node,
      " has. Set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE.");
}

std::optional<Environment> read_batch_system() {
  for (const Names& names : {kOpenMpi, kSlurm, kPmi}) {
    const auto size = get_environment_integer(names.world_size, 1, kMost);
    if (!size || !get_environment(names.rank)) {
      continue;
    }
    Environment environment;
    environment.world_size = *size;
    if (*size == 1) {
      return environment;
    }
    environment.rank = required(names, names.rank, *size - 1);
    environment.local_rank = required(names, names.local_rank, *size - 1);
    environment.local_world_size = names.local_world_size != nullptr
        ? required(names, names.local_world_size, *size)
        : tasks_of_node(
              get_environment("SLURM_STEP_TASKS_PER_NODE").value_or(""),
              required(names, "SLURM_NODEID", kMost));
    TORCH_CHECK(
        environment.local_rank < environment.local_world_size,
        "accel: ",
        names.launcher,
        " says that this is process ",
        environment.local_rank,
        " of the ",
        environment.local_world_size,
        " on this host (",
        names.local_rank,
        "); they are counted from 0.");
    const auto address = get_environment("MASTER_ADDR");
    environment.master_addr =
        address ? *address : master_for(names, environment);
    environment.master_port = static_cast<uint16_t>(
        get_environment_integer("MASTER_PORT", 1, 65535)
            .value_or(port_for(names)));
    return environment;
  }
  return std::nullopt;
}

} // namespace accel::detail
