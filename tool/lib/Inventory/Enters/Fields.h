//===- Fields.h - Batches that are rows of one tensor -----------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FIELDS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FIELDS_H

#include "clang/AST/Expr.h"

namespace accel::migrate {

/// `t[0]` or `t.select(0, 1)`, where the function takes several such rows out of `t`,
/// by numbers alone: `users = t[0], items = t[1]`. Each is a batch, and the rows of
/// `t` are no samples.
bool isField(const clang::Expr *E, const clang::ASTContext &Context);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FIELDS_H
