#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cause.h"
#include "files_compare.h"
#include "run.h"
#include "text_compare.h"
#include "trace_compare.h"

namespace accel::verify {

/// Exit codes of `accel verify`, the worst of all runs.
enum class Outcome : int { kEqual = 0, kDifferent = 1, kNotCompared = 2 };

/// All that is known about one run of the migrated program.
struct Verdict {
  int processes = 1;
  /// How it was started: "2 processes", "-n 2 --fsdp FULL_SHARD".
  std::string way;
  Outcome outcome = Outcome::kNotCompared;
  /// "at step 4, the gradient of …", "process 1 printed, too", or why it could
  /// not be compared.
  std::string finding;
  Cause cause;
  std::optional<TraceComparison> trace;
  TextComparison text;
  FilesComparison files;
  double seconds = 0;
  /// What the person should know besides.
  std::vector<std::string> notes;
};

/// What is to be said of tensors whose values or gradients say nothing. There can be
/// one for each layer: one note for all of a kind.
std::vector<std::string> notes_on_left_out(const TraceComparison& trace);

/// Compares a run of the migrated program with the original's. `repeat` is a
/// second run of the original, or the first one where there is none.
Verdict judge(
    const Run& original,
    const Run& repeat,
    const Run& migrated,
    const ToleranceOptions& options);

/// Why the original itself cannot be compared with anything; empty where it
/// can. It failed, calls no backward, or does not do the same twice.
std::string cannot_compare(
    const Run& original, const Run& repeat, const ToleranceOptions& options);

/// Says what is equal and how far apart the rest is, in one line.
std::string summary(const Verdict& verdict);

} // namespace accel::verify
