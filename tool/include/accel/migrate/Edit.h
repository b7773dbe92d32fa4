//===- Edit.h - From plans to texts -----------------------------*- C++ -*-===//
//
// Merges what several units ask for, file by file, and applies it. Knows text
// and plans, nothing of Clang's AST.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_EDIT_H
#define ACCEL_MIGRATE_EDIT_H

#include "accel/migrate/Change.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace accel::migrate {

/// What one unit asks for. Paths are real paths.
struct UnitPlan {
  std::string MainFile;
  /// See PlanOptions.
  bool MainElsewhere = false;
  bool Joins = false;
  /// The sources that were read together; `MainFile` is one of them.
  std::vector<std::string> Sources;
  Plan ThePlan;
  /// The user's files that the unit consists of, and their texts.
  std::map<std::string, std::string> Files;
  /// Parts of these that the preprocessor left out.
  std::vector<TextRange> Unseen;
};

/// One file, before and after.
struct FileEdit {
  std::string File;
  std::string Before, After;
  /// Sorted by place; the include is one of them.
  std::vector<Change> Changes;
};

/// Units that depend on each other through the files that they change or read:
/// all of them are migrated, or none (promise P4).
struct EditGroup {
  std::vector<size_t> Units;   ///< Indices into the plans, ascending.
  std::vector<FileEdit> Files; ///< Changed files by path; empty if refused.
  /// Why the group is refused, beyond the refusals in the plans themselves.
  std::vector<Finding> Problems;
  bool Refused = false;
};

/// Merges the plans. A change that several units ask for is made once; changes
/// that differ between units or overlap refuse the group, and so does a plan
/// with a refusal, or a change in a file that `MayEdit` denies.
std::vector<EditGroup>
mergePlans(llvm::ArrayRef<UnitPlan> Units,
           llvm::function_ref<bool(llvm::StringRef)> MayEdit);

/// `Before` with the changes made. They are sorted first: by offset, an
/// insertion before what replaces the text behind it, insertions by priority
/// and then in the order given. Fails if two overlap or one is out of bounds;
/// then `Culprit` is the later of the two.
llvm::Expected<std::string> applyChanges(llvm::StringRef Before,
                                         std::vector<Change> &Changes,
                                         Change &Culprit);

/// The change that adds `#include <accel/accel.h>`: on a line of its own behind
/// the last include of a torch header that is not in an inner #if, else behind
/// the last include, else at the top; before what the changes make use accel's names.
/// Nothing if the file includes it there already.
std::optional<Change> accelInclude(llvm::StringRef File, llvm::StringRef Text,
                                   llvm::ArrayRef<Change> Changes);

/// Line and column (1-based, in bytes) of an offset.
std::pair<unsigned, unsigned> lineAndColumn(llvm::StringRef Text,
                                            unsigned Offset);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_EDIT_H
