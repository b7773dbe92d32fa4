#pragma once

#include <string>
#include <vector>

#include "verdict.h"
#include "verify_options.h"

namespace accel::verify {

/// Everything that a report shows.
struct Result {
  VerifyOptions options;
  double seconds_original = 0;
  Outcome outcome = Outcome::kNotCompared;
  /// Why nothing could be compared; empty where it could.
  std::string obstacle;
  /// What the reader must know of the runs; may be empty.
  std::string note;
  std::vector<Verdict> verdicts;
};

/// Runs both programs and compares them; progress goes to standard error.
/// Throws `launcher::Error`.
Result verify(const VerifyOptions& options);

/// The verdict for a person, on standard output.
void print(const Result& result);

/// `accel verify`: parses, runs, prints, writes the report. Returns the exit
/// code.
int verify_command(const std::vector<std::string>& arguments);

} // namespace accel::verify
