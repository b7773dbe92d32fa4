#pragma once

#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace_reader.h"
#include "workplace.h"

namespace accel::verify {

/// One run that is to be made.
struct RunPlan {
  /// For messages: "the original", "the migrated program with 2 processes".
  std::string name;
  /// `Run::way`.
  std::string way;
  /// 0: the original, without a launcher.
  int processes = 0;
  /// Options of `accel launch`, the number of processes among them; empty: only
  /// that.
  std::vector<std::string> launch;
  /// An absolute path and its arguments.
  std::vector<std::string> program;
  /// Where the run's folders are made; it must not exist yet.
  std::filesystem::path directory;
  /// What its working directory begins with.
  std::filesystem::path source;
  Widening widening = Widening::kNone;
  /// Compute with other instructions of the processor, which round otherwise, and with
  /// gradients that differ by a rounding.
  bool other_instructions = false;
  uint64_t seed = 0;
  /// What time() says when the program begins.
  std::time_t begin = 0;
  uint64_t max_steps = 0;
  /// Seconds; 0: no limit.
  double timeout = 0;
  /// Start no earlier than this many seconds after the others.
  double delay = 0;
};

/// What came of it.
struct Run {
  std::string name;
  int processes = 0;
  /// How it was started, for the verdict: "2 processes", "-n 2 --fsdp FULL_SHARD".
  std::string way;
  /// As a shell counts: 128 + signal.
  int exit_code = 0;
  bool timed_out = false;
  double seconds = 0;
  /// By rank; one for the original. Missing where a process left none.
  std::vector<std::optional<Trace>> traces;
  /// What each process printed.
  std::vector<std::string> output;
  std::vector<std::string> errors;
  std::vector<std::string> written;
  std::filesystem::path work_directory;
  /// Process 0's final values.
  std::filesystem::path tensors;
  /// The user's own files that it wrote into.
  std::vector<std::string> damaged;

  /// What process 0 recorded.
  const Trace& main_trace() const {
    return *traces.at(0);
  }
};

/// Where the parts lie that a run needs.
struct Installation {
  /// This executable.
  std::string accel;
  /// libaccel_trace.so.
  std::string trace_library;
};

/// Finds them. Throws `launcher::Error`.
Installation find_installation();

/// Runs it to its end. Throws std::runtime_error where it cannot be started.
Run run(const RunPlan& plan, const Installation& installation);

} // namespace accel::verify
