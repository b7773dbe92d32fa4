//===- MacroChanges.h - Changes in the text of macros -----------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_RULES_MACROCHANGES_H
#define ACCEL_MIGRATE_LIB_RULES_MACROCHANGES_H

#include "accel/migrate/Change.h"

#include "llvm/ADT/ArrayRef.h"

namespace accel::migrate {

/// Of each macro one use, where none of the changes is in its text.
std::vector<UsedMacro> keptMacros(llvm::ArrayRef<Change> Changes,
                                 llvm::ArrayRef<UsedMacro> Uses);

/// Makes one of the changes that all uses of a macro want in its text. Where they want
/// different ones, the plan is refused.
void mergeMacroChanges(Plan &ThePlan, llvm::ArrayRef<UsedMacro> Uses);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_RULES_MACROCHANGES_H
