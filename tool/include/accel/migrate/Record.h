//===- Record.h - What a run found and did ----------------------*- C++ -*-===//
//
// The one data structure that all reports are made from: plain data about
// text, without Clang.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_RECORD_H
#define ACCEL_MIGRATE_RECORD_H

#include "accel/migrate/Edit.h"

#include <map>
#include <string>
#include <vector>

namespace accel::migrate {

/// What became of a program, or of a file that is part of none.
enum class Outcome {
  Migrated,        ///< One of its files changes.
  NothingToDo,     ///< It has training code and needs no change.
  AlreadyMigrated, ///< It uses accel.
  NoTraining,      ///< It has no training code.
  Refused,
  DoesNotCompile, ///< Or cannot be read as it is to be compiled.
  Crashed,        ///< The analysis did.
};

/// "migrated", "does-not-compile" …
llvm::StringRef outcomeName(Outcome O);

/// "note", "warning" or "refusal".
llvm::StringRef severityName(Severity Level);

struct UnitRecord {
  std::string File; ///< Real path.
  Outcome Result = Outcome::NothingToDo;
};

struct RunRecord {
  /// "diff", "check", "lint", "write" or "tree".
  std::string Mode;
  bool MatchSingleDevice = true;
  /// The programs that the named files belong to, by their main files.
  std::vector<UnitRecord> Units;
  /// Their groups; those that are refused have no files.
  std::vector<EditGroup> Groups;
  /// Everything that is to be said, each once, in the order in which it is.
  std::vector<Finding> Findings;
  /// Changes of files that are refused, which are not made.
  std::vector<Change> Withheld;
  /// The user's files that were read, as they were.
  std::map<std::string, std::string> Texts;
  int ExitCode = 0;

  /// The text of a file, or "" if it was not read.
  llvm::StringRef textOf(const std::string &File) const {
    auto Found = Texts.find(File);
    return Found == Texts.end() ? llvm::StringRef() : Found->second;
  }
};

/// The changes of a file as replacements that do not touch: those that meet are
/// one, with the reasons and rules of all, so that it does not matter in which
/// order they are made.
std::vector<Change> separateChanges(const FileEdit &File);

/// What is different about a run of the migrated program, or is not: the batch,
/// the order of the samples, the learning rate …
struct ResultNote {
  std::string Topic; ///< "effective batch"
  std::string Text;  ///< Sentences.
};

/// The notes for what this run changed; none if it changed nothing.
std::vector<ResultNote> resultNotes(const RunRecord &Record);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_RECORD_H
