//===- Calls.h - What calls of all kinds have in common ---------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_CALLS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_CALLS_H

#include "Differing.h"
#include "Interpreter.h"

namespace accel::migrate {

bool isNamed(const clang::FunctionDecl *F,
             llvm::ArrayRef<llvm::StringRef> Names);

std::vector<const clang::Expr *> argumentsOf(const clang::CallExpr *E,
                                             unsigned From = 0);

/// The operands of a call of a tensor operation, with their parameters' names.
void addOperands(OpCall &Call, const clang::FunctionDecl *F,
                 llvm::ArrayRef<const clang::Expr *> Args,
                 llvm::ArrayRef<Value> Values);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_CALLS_H
