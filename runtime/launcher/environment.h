#pragma once

#include <string>
#include <vector>

#include "launch_options.h"

namespace accel::launcher {

/// What all processes of one launch have in common.
struct Rendezvous {
  /// Where process 0 will host the store.
  int port = 0;
  /// Names the launch (TORCHELASTIC_RUN_ID).
  std::string run_id;
  /// How often the processes have been started before.
  int restarts = 0;
};

/// The environment of process `rank` of those on this host, as "NAME=value" sorted by name:
/// `inherited` (as `environ`, ending with a null pointer) with torchrun's
/// variables and the ones that the options stand for.
///
/// Whatever an outer launch said about ranks, the store or error files is
/// overwritten or removed. OMP_NUM_THREADS is only set where the user has not
/// set it, and never for a single process, which owns the machine as it would
/// without a launcher. `failure_note` is the path of the process's `Note`,
/// `failure_news` that of the launcher's.
std::vector<std::string> process_environment(
    const LaunchOptions& options,
    int rank,
    const Rendezvous& rendezvous,
    const std::string& failure_note,
    const std::string& failure_news,
    const char* const* inherited);

/// What `process_environment` sets or changes, for people to read.
std::vector<std::string> environment_changes(
    const std::vector<std::string>& environment, const char* const* inherited);

/// The processor cores that this process may use.
int available_cores();

/// OMP_NUM_THREADS of each of `num_processes` where nobody says.
int fair_threads(int num_processes);

/// The cores of local process `rank` of `num_processes`, a fair share of those
/// that this process may use; more processes than cores share.
std::vector<int> fair_cores(int rank, int num_processes);

} // namespace accel::launcher
