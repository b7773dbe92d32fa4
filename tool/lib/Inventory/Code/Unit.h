//===- Unit.h - The unit that is looked at ----------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_UNIT_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_UNIT_H

#include "FunctionTable.h"
#include "ProgramIndex.h"
#include "SourceText.h"

namespace accel::migrate {

/// What everything that finds facts reads, and the program that it adds them to.
struct Unit {
  SourceText &Text;
  const ProgramIndex &Index;
  FunctionTable &Functions;
  TrainingProgram &Program;

  /// Adds a finding.
  void say(llvm::StringRef Id, clang::SourceLocation Loc, std::string Message,
           std::string Remedy = "") const;
  /// Says why the last range could not be had.
  void problem(clang::SourceLocation Loc) const;
  /// The range, perhaps in a macro's text, or a finding that says why it cannot be
  /// changed.
  std::optional<TextRange> editable(clang::SourceRange Range) const;
  /// The same, in the text that has `Outer`.
  std::optional<TextRange> editableIn(const TextRange &Outer,
                                      clang::SourceRange Range) const;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_UNIT_H
