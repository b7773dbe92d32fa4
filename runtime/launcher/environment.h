#pragma once

#include <string>
#include <vector>

#include "launch_options.h"

namespace accel::launcher {

/// What all processes of one launch have in common.
struct Rendezvous {
  /// Where process 0 will host the store, on the loopback interface.
  int port;
  /// Names the launch (TORCHELASTIC_RUN_ID).
  std::string run_id;
};

/// The environment of process `rank`, as "NAME=value" sorted by name:
/// `inherited` (as `environ`, ending with a null pointer) with torchrun's
/// variables and the ones that the options stand for.
///
/// Whatever an outer launch said about ranks, the store or error files is
/// overwritten or removed. OMP_NUM_THREADS is only set where the user has not
/// set it, and never for a single process, which owns the machine as it would
/// without a launcher. `failure_note` is the path of the process's `Note`.
std::vector<std::string> process_environment(
    const LaunchOptions& options,
    int rank,
    const Rendezvous& rendezvous,
    const std::string& failure_note,
    const char* const* inherited);

/// The processor cores that this process may use.
int available_cores();

} // namespace accel::launcher
