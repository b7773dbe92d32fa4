//===- Sizes.h - The sizes that a function says -----------------*- C++ -*-===//
//
// `torch::zeros({x.size(0), 8})`: which tensor's sizes stand in a list of sizes.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SIZES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SIZES_H

#include "clang/AST/Decl.h"
#include "clang/AST/Expr.h"

#include <optional>

namespace accel::migrate {

/// The list of sizes, or of indices, in an argument; null where there is none.
const clang::InitListExpr *listIn(const clang::Stmt *S);

/// The sizes that `torch::zeros({…})` or `x.new_zeros({…})` lists: those of all
/// functions that make equal entries. Null for others.
const clang::InitListExpr *sizesOfBuffer(const clang::Expr *Made);

/// `x.size(Dim)`.
struct SizeOf {
  const clang::DeclRefExpr *Tensor = nullptr;
  unsigned Dim = 0;
};

/// The size that `E` is, in `F`: `x.size(0)`, `x.sizes()[0]`, or a variable that is
/// made of one; of a variable of `F` only.
std::optional<SizeOf> sizeOf(const clang::Expr *E,
                             const clang::FunctionDecl *F);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SIZES_H
