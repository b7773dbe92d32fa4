//===- Together.h - Tensors that belong together ----------------*- C++ -*-===//
//
// An input and its target: shared out together they lie alike, and a reader of the
// program sees that they belong together.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_TOGETHER_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_TOGETHER_H

#include "Code/ProgramIndex.h"
#include "Code/SourceText.h"

#include <set>

namespace accel::migrate {

/// Whether a variable, or each tensor of a struct, is used in `S` for nothing but to
/// calculate with all of it: whoever reads its elements wants to have them all.
bool isOnlyCalculatedWith(const clang::ValueDecl *V, const clang::Stmt *S);

/// Some rows of a tensor: `data.slice(0, i, i + n)`, `data.index({ids})`.
bool selectsRows(const clang::Expr *E);

/// How rows are taken out of a tensor, without its name: `.index_select(0, rows)`;
/// empty where it is made in another way.
std::string selectionOf(const clang::Expr *E, SourceText &Text);

/// The variables that an expression or a statement names.
std::set<const clang::VarDecl *> variablesNamedIn(const clang::Stmt *S);

/// The tensors that are declared in the block of `F` in which `Init` is given to
/// one, that one included.
std::vector<const clang::VarDecl *>
tensorsBeside(const clang::Expr *Init, const clang::FunctionDecl *F);

/// x and y of `auto [x, y] = call()` and `std::tie(x, y) = call()` in `F`; null for
/// what is no variable.
llvm::SmallVector<const clang::ValueDecl *, 4>
variablesOf(const clang::CallExpr *Call, const clang::FunctionDecl *F);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_TOGETHER_H
