//===- Report.h - What the person sees --------------------------*- C++ -*-===//
//
// Renderers of edits and findings. None knows Clang's AST.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_REPORT_H
#define ACCEL_MIGRATE_REPORT_H

#include "accel/migrate/Record.h"

#include "llvm/Support/raw_ostream.h"

namespace accel::migrate {

/// How paths are printed: relative to the current folder if they are in it.
std::string displayPath(llvm::StringRef RealPath);

/// Prints a unified diff, with the reasons. In colour each reason has a line
/// above its hunk. Without, it is one that `patch -p1` and `git apply` accept:
/// these take no lines between hunks, so all reasons stand above the file's
/// header and the rules behind each hunk's @@.
void printDiff(llvm::raw_ostream &OS, const FileEdit &File, bool Colored);

/// Prints `file:line:col: refused: message [ID]` and the remedy.
void printFinding(llvm::raw_ostream &OS, const Finding &F, bool Colored);

/// The record as JSON; docs/accel-migrate.schema.json describes it.
void printJson(llvm::raw_ostream &OS, const RunRecord &Record);

/// The record as a log of SARIF 2.1.0.
void printSarif(llvm::raw_ostream &OS, const RunRecord &Record);

/// The record as clang-apply-replacements takes it, and what reads the fixes
/// of clang-tidy.
void printYaml(llvm::raw_ostream &OS, const RunRecord &Record);

/// The record as one page that needs nothing else.
void printHtml(llvm::raw_ostream &OS, const RunRecord &Record);

/// Why a line (from 1) is changed or not, and what is known of it. `InNewText`:
/// the line is one of the migrated text.
void printExplanation(llvm::raw_ostream &OS, const RunRecord &Record,
                      const std::string &File, unsigned Line, bool InNewText);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_REPORT_H
