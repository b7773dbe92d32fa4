//===- Fields.h - Rows of tensors, and batches that are such ----*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FIELDS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FIELDS_H

#include "clang/AST/Expr.h"

namespace accel::migrate {

/// `x[i]` of a tensor, `x.select(0, i)`: the tensor and the row's number; null
/// for others.
struct Row {
  const clang::Expr *Tensor = nullptr, *Number = nullptr;
};
Row rowOf(const clang::Expr *E, const clang::ASTContext &Context);

/// `t[0]` or `t.select(0, 1)`, where the function takes several such rows out of `t`,
/// by numbers alone: `users = t[0], items = t[1]`. Each is a batch, and the rows of
/// `t` are no samples.
bool isField(const clang::Expr *E, const clang::ASTContext &Context);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FIELDS_H
