#pragma once

#include <string>
#include <vector>

#include "summary.h"

namespace accel::launcher {

/// One host's part of a job.
struct Share {
  /// Its --machine-rank.
  int machine = 0;
  /// Its name, as it calls itself.
  std::string host;
  /// How many processes it runs; a host may be left with none.
  int processes = 0;
};

/// What all hosts start together: ranks are counted through the shares.
struct Attempt {
  /// How often the processes were started before (TORCHELASTIC_RESTART_COUNT).
  int number = 0;
  /// Where process 0 hosts the store, a new one for each attempt on several
  /// hosts.
  int port = 0;
  /// Names the job (TORCHELASTIC_RUN_ID).
  std::string run_id;
  /// By machine rank.
  std::vector<Share> shares;

  int world_size() const;
  /// The first rank on this machine.
  int first_rank(int machine) const;
  /// How many processes this machine runs; 0 where it takes no part.
  int processes(int machine) const;
  /// Hosts that run processes.
  int hosts() const;
  /// The number of this machine among those, from 0.
  int host_number(int machine) const;
  /// The machine on which `rank` runs.
  int machine_of(int rank) const;
};

/// What became of the processes of one host, or of all of them.
struct Report {
  /// By rank.
  std::vector<Ending> endings;
  /// The signal with which a user has ended it; 0 for none.
  int user_signal = 0;
  /// Whoever read the output has gone (`| head`).
  bool reader_gone = false;
};

/// What a launcher does next.
struct Verdict {
  /// Start the processes of `attempt`; otherwise end with `exit_code`.
  bool start = false;
  Attempt attempt;
  int exit_code = 0;
  /// For standard error; may be empty.
  std::string text;
};

} // namespace accel::launcher
