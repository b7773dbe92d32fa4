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

/// Whether `E` is the variable `V`, or a tensor of it, `batch.x`.
bool isNamed(const clang::Expr *E, const clang::ValueDecl *V);

/// Whether a variable, or each tensor of a struct, is used in `S`, and in the program's
/// functions that are given it there, for nothing but to calculate with all of it:
/// whoever reads its elements wants to have them all.
bool isOnlyCalculatedWith(const clang::ValueDecl *V, const clang::Stmt *S,
                          const ProgramIndex &Index, unsigned Depth = 0);

/// Some rows of a tensor: `data.slice(0, i, i + n)`, `data.index({ids})`.
bool selectsRows(const clang::Expr *E);
/// The same, or a part of each row, `series.select(1, t)`: all rows are there.
bool selectsOfEachRow(const clang::Expr *E, const clang::ASTContext &Context);

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
