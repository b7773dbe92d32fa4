//===- Closures.h - The functions that lambdas are --------------*- C++ -*-===//
//
// A lambda with `auto` parameters has a body for each list of types that it is
// called with, and one that is a pattern, in which no call and no type is known.
// The first of the former stands for all: they share one text. What only another
// one has (`if constexpr`) is not seen.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CODE_CLOSURES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CODE_CLOSURES_H

#include "clang/AST/ExprCXX.h"

namespace accel::migrate {

/// The function that a lambda's class calls; of one with `auto` parameters that
/// nothing calls the pattern.
const clang::CXXMethodDecl *operatorOf(const clang::CXXRecordDecl *Closure);
const clang::CXXMethodDecl *operatorOf(const clang::LambdaExpr *L);

/// Whether a function, which may be null, is a method of a lambda's class.
bool isOfClosure(const clang::FunctionDecl *F);

/// Its body; null where it is a pattern.
clang::Stmt *bodyOf(const clang::LambdaExpr *L);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CODE_CLOSURES_H
