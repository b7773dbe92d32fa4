//===- Session.h - One run of accel-migrate ---------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_TOOL_SESSION_H
#define ACCEL_MIGRATE_TOOL_SESSION_H

#include "TryOut.h"

#include "accel/migrate/Edit.h"
#include "accel/migrate/Frontend.h"
#include "accel/migrate/Planner.h"

namespace accel::migrate {

/// In the order of precedence: a run ends with the greatest that applies.
enum ExitCode {
  ExitDone = 0,
  ExitRefused = 1, ///< Or --check found something to do.
  ExitUsage = 2,
  ExitDoesNotCompile = 3,
  ExitInternal = 4, ///< Or I/O.
};

struct SessionOptions {
  /// Verify: like Write, if the migrated program is the original (TryOut.h).
  enum Mode { Diff, Write, Tree, Check, Lint, Verify };
  Mode TheMode = Diff;
  /// What stands on the standard output: the diff (or the list of --check), or
  /// the record of the run.
  enum Format { Text, Json, Sarif, Yaml };
  Format TheFormat = Text;
  std::vector<std::string> Files;
  std::string OutRoot;
  /// A line to explain instead of all else; 0: none. The file is a real path.
  std::string ExplainFile;
  unsigned ExplainLine = 0;
  std::string ReportFile; ///< Of the HTML page; empty: none.
  std::string StateDir;
  TryOutOptions TryOut;
  bool MatchSingleDevice = true;
  /// Make the targets in CMakeLists.txt link accel.
  bool CMake = false;
  bool Quiet = false;
  bool Stats = false;
  /// Files to be read at a time; 0: as many as there are cores.
  unsigned Jobs = 0;
  bool ColorOut = false, ColorErr = false;
  FrontendOptions Frontend;
};

/// Analyses the files, verifies what would come out, and shows or writes it.
/// Returns the exit code.
int runSession(SessionOptions Options);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_SESSION_H
