//===- ListedModels.h - Models whose parameters come in a list --*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_LISTEDMODELS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_LISTEDMODELS_H

#include "clang/AST/Decl.h"
#include "clang/AST/Expr.h"

#include <vector>

namespace accel::migrate {

/// The models whose parameters an optimizer is given in `Parameters`, where that
/// is a list of several models', or of some of a model's: in the expression, and
/// in what the statements `Before` it put into the variables that it names. In
/// the order in which they are named. A model that is a part of another one
/// counts as that.
std::vector<const clang::ValueDecl *>
modelsInList(const clang::Expr *Parameters,
             llvm::ArrayRef<const clang::Stmt *> Before);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_LISTEDMODELS_H
