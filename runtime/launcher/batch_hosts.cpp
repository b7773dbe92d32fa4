#include "batch_hosts.h"

#include <algorithm>
#include <cstdlib>

#include "core/plain_text.h"
#include "error.h"

namespace accel::launcher {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// -1 where it is not set.
int number(const char* name) {
  const std::string value = variable(name);
  return value.empty() ? -1 : std::atoi(value.c_str());
}

/// Below the ports that systems give out; another one for the next job.
int port_for(const std::string& job) {
  unsigned hash = 2166136261U;
  for (char c : job) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return job.empty() ? 0 : static_cast<int>(15000 + hash % 17000);
}

[[noreturn]] void several_launchers(
    const std::string& system, const std::string& remedy) {
  throw Error(
      kUsage,
      system + " has started accel launch several times on this host, and "
               "each would start all processes. " +
          remedy);
}

} // namespace

std::optional<BatchHosts> find_batch_hosts() {
  const int mpi_size = number("OMPI_COMM_WORLD_SIZE");
  if (mpi_size > 1) {
    if (number("OMPI_COMM_WORLD_LOCAL_SIZE") != 1) {
      several_launchers(
          "Open MPI",
          "Start it once on each (mpirun --map-by ppr:1:node), or the program "
          "without accel launch");
    }
    return BatchHosts{
        "Open MPI",
        mpi_size,
        number("OMPI_COMM_WORLD_RANK"),
        "",
        port_for(variable("PMIX_NAMESPACE"))};
  }
  // Variables of a step: in the batch script itself there is one launcher.
  const int tasks = number("SLURM_STEP_NUM_TASKS");
  if (tasks > 1) {
    const int nodes = number("SLURM_STEP_NUM_NODES");
    if (tasks != nodes) {
      several_launchers(
          "Slurm",
          "Start it once on each (srun --ntasks-per-node=1), or the program "
          "without accel launch");
    }
    return BatchHosts{
        "Slurm",
        nodes,
        number("SLURM_NODEID"),
        detail::first_host(variable("SLURM_STEP_NODELIST")),
        port_for(
            variable("SLURM_JOB_ID") + "." + variable("SLURM_STEP_ID"))};
  }
  return std::nullopt;
}

} // namespace accel::launcher
