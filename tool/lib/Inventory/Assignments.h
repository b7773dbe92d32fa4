//===- Assignments.h - Where variables are set ------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ASSIGNMENTS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ASSIGNMENTS_H

#include "clang/AST/Decl.h"
#include "clang/AST/Expr.h"
#include "clang/Basic/SourceManager.h"

namespace accel::migrate {

/// `std::tie(a, b)`, `std::forward_as_tuple(a, std::tie(b, c))`: a tuple of
/// what is assigned to.
bool isTupleOfReferences(const clang::Expr *E);

/// Whether the variable is assigned to in the part of `Body` that stands behind
/// `Place`.
bool isSetBehind(const clang::Stmt *Body, const clang::ValueDecl *Variable,
                 clang::SourceLocation Place, const clang::SourceManager &SM);

/// Whether a name of its own holds the value, and it can be set to another.
bool isAssignable(const clang::ValueDecl *V);

} // namespace accel::migrate

#endif
