//===- Change.h - What a migration does to the text -------------*- C++ -*-===//
//
// Changes and findings are plain data about text: files, offsets, words. They
// know nothing of Clang, so that editing, reporting and testing do not either.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_CHANGE_H
#define ACCEL_MIGRATE_CHANGE_H

#include <string>
#include <vector>

namespace accel::migrate {

/// A piece of a file. `File` is the real path (symlinks resolved), so that one
/// file reached by two names is one file.
struct TextRange {
  std::string File;
  unsigned Offset = 0;
  unsigned Length = 0;
  /// In the text of a macro: which use of it this was found in, counted from 1 in
  /// `TrainingProgram::MacroUses`. 0 in all other text, and in a plan.
  unsigned Use = 0;

  /// A piece of it, `Skip` characters behind its begin.
  TextRange part(unsigned Skip, unsigned Size) const {
    return {File, Offset + Skip, Size, Use};
  }
  bool isIn(const TextRange &Other) const {
    return File == Other.File && Offset >= Other.Offset &&
           Offset + Length <= Other.Offset + Other.Length;
  }
};

/// A place where a macro of the person's is replaced by its text.
struct UsedMacro {
  std::string Macro;
  std::vector<std::string> Parameters;
  TextRange Text; ///< Where its text is, in its definition.
  std::string Words; ///< The text.
  TextRange At;   ///< Where it is used.
  unsigned Line = 0;
  unsigned Column = 0;
};

/// One replacement, and why it is made. `Length` 0 is an insertion before the
/// character at `Offset`.
struct Change {
  TextRange Range;
  std::string Replacement;
  /// Name of the rule that asks for it, e.g. "backward-call".
  std::string Rule;
  /// One sentence for the reader of the diff, e.g. "gradients are averaged
  /// over the processes here".
  std::string Why;
  /// Orders insertions at the same offset: lower comes first in the text.
  int Priority = 0;
};

/// How a finding bears on the file that it is in.
enum class Severity {
  Note,    ///< Something to know; the file is migrated.
  Warning, ///< The results may differ in the way described; migrated.
  Refusal, ///< The file (and what must change with it) is left alone.
};

/// Something to tell the person. Ids are "ACL0105"; they never change meaning
/// and are never used again (docs/findings has a page for each).
struct Finding {
  std::string Id;
  Severity Level = Severity::Refusal;
  TextRange Range;
  unsigned Line = 0;   ///< 1-based; 0 when the finding has no place.
  unsigned Column = 0; ///< 1-based, in bytes.
  /// What was seen here, and why it stops; lower case, no full stop.
  std::string Message;
  /// What the person can do about it by hand; a sentence, may be empty.
  std::string Remedy;
};

/// A function that is called and has no body in what was read.
struct MissingFunction {
  std::string Class; ///< For methods.
  std::string Name;
  std::string DeclaredIn; ///< Real path.
};

/// What is to be done with one program, or with one of its sources.
struct Plan {
  std::vector<Change> Changes;
  std::vector<Finding> Findings;
  /// Files that need `#include <accel/accel.h>` (real paths). The edit stage
  /// puts it behind the last torch include, once, if it is not there.
  std::vector<std::string> NeedInclude;
  /// What other sources of the program must define.
  std::vector<MissingFunction> Missing;
  /// For each macro that is used and whose text does not change: the first use.
  std::vector<UsedMacro> KeptMacros;
  /// True when the unit contains training code at all. False with no changes
  /// and no refusals means "nothing to migrate here".
  bool HasTraining = false;
  /// True when the unit is migrated already (it uses accel); then there are no
  /// changes.
  bool AlreadyMigrated = false;

  bool refused() const {
    for (const Finding &F : Findings)
      if (F.Level == Severity::Refusal)
        return true;
    return false;
  }
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_CHANGE_H
