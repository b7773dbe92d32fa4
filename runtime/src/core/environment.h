#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace accel::detail {

/// What a launcher (accel launch, torchrun, …) says about this process.
struct Environment {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;
  int64_t local_world_size = 1;
  /// Where the processes meet; only looked at with more than one.
  std::string master_addr;
  uint16_t master_port = 0;
  /// The launcher hosts the store, so that process 0 is a client too.
  bool agent_store = false;

  bool distributed() const {
    return world_size > 1;
  }
  bool single_host() const;
};

/// Reads torchrun's variables; without them what Open MPI, Slurm's srun, or an
/// MPI with PMI (MPICH, Intel MPI) say about the process. Throws `c10::Error` naming the variable, its
/// value and the remedy where they are incomplete or contradict each other.
Environment read_environment();

/// The same without torchrun's variables; nothing outside of such a launch.
std::optional<Environment> read_batch_system();

/// The number for a node of "4(x2),3", Slurm's tasks per node; throws where
/// the text is another.
int64_t tasks_of_node(const std::string& tasks_per_node, int64_t node);

/// The variable's value, empty where it is not set or has no characters.
std::optional<std::string> get_environment(const char* name);

/// y/yes/t/true/on/1 and n/no/f/false/off/0 as Accelerate reads them; throws
/// for anything else.
std::optional<bool> get_environment_flag(const char* name);

/// A whole number in [least, most]; throws for anything else.
std::optional<int64_t> get_environment_integer(
    const char* name,
    int64_t least,
    int64_t most);

} // namespace accel::detail
