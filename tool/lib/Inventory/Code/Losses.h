//===- Losses.h - What backward is called on --------------------*- C++ -*-===//
//
// A loop that only goes through losses (`for (auto &loss : losses)
// loss.backward();`) is no step of its own: the step is where they are made.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_LOSSES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_LOSSES_H

#include "clang/AST/Expr.h"
#include "clang/Basic/SourceManager.h"

namespace accel::migrate {

/// The variable that is a loss, or the list of which it is an element.
const clang::ValueDecl *lossOf(const clang::Expr *E);

/// Whether the loss that `V` names, or those that it holds, are made before a loop.
bool isMadeBefore(const clang::ValueDecl *V, const clang::Stmt *Loop,
                  const clang::SourceManager &SM);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_LOSSES_H
