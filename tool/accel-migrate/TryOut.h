//===- TryOut.h - Is the migrated program the original? ---------*- C++ -*-===//
//
// What --verify does before anything is written: the project is copied twice,
// the changes are made in one copy, both are built, and `accel verify` runs and
// compares them.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_TOOL_TRYOUT_H
#define ACCEL_MIGRATE_TOOL_TRYOUT_H

#include "accel/migrate/Edit.h"

namespace accel::migrate {

struct TryOutOptions {
  /// The person's build command, for a shell; empty: CMake where the project
  /// has a CMakeLists.txt, else one call of the compiler.
  std::string Build;
  /// The program and its arguments; empty: what the build has made, without
  /// arguments.
  std::string Run;
  std::string NumProcesses = "1,2";
  /// The project; empty: the nearest folder above the files that has .git, or
  /// their common folder.
  std::string Root;
  /// This executable; `accel` lies beside it.
  std::string Executable;
  /// For the one call of the compiler.
  std::vector<std::string> Sources, Flags;
  bool Quiet = false;
};

enum class TryOutResult {
  Equal,
  Different,
  NotCompared, ///< `accel verify` has said why.
  NotBuilt,    ///< So has the build, on the standard error.
};

/// An error means that it could not be tried: I/O, or a missing tool.
llvm::Expected<TryOutResult> tryOut(llvm::ArrayRef<FileEdit> Edits,
                                    const TryOutOptions &Options);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_TOOL_TRYOUT_H
