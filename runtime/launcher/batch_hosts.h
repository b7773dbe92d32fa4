#pragma once

#include <optional>
#include <string>

namespace accel::launcher {

/// What a batch system that has called `accel launch` once on each of several
/// hosts says about them.
struct BatchHosts {
  /// "Slurm" or "Open MPI".
  std::string system;
  int machines;
  int rank;
  /// The first host; empty where it is not known.
  std::string main;
  /// A port that is made of the job's number; 0 where that is not known.
  int port;
};

/// Reads the environment. Nothing outside of such a launch, or with one host.
/// Throws `Error` (kUsage) where several launchers were started on one host.
std::optional<BatchHosts> find_batch_hosts();

} // namespace accel::launcher
