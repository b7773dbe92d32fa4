//===- Report.h - What the person sees --------------------------*- C++ -*-===//
//
// Renderers of edits and findings. None knows Clang.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_REPORT_H
#define ACCEL_MIGRATE_REPORT_H

#include "accel/migrate/Edit.h"

#include "llvm/Support/raw_ostream.h"

namespace accel::migrate {

/// How paths are printed: relative to the current folder if they are in it.
std::string displayPath(llvm::StringRef RealPath);

/// Prints a unified diff, with the reasons. Without colour it is one that
/// `patch -p0` accepts: the reasons stand behind each hunk's @@, where diff
/// prints the function. In colour each has a line above the hunk.
void printDiff(llvm::raw_ostream &OS, const FileEdit &File, bool Colored);

/// Prints `file:line:col: refused: message [ID]` and the remedy.
void printFinding(llvm::raw_ostream &OS, const Finding &F, bool Colored);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_REPORT_H
