//===- Returned.h - What functions of the program return --------*- C++ -*-===//
//
// Batches that a function of the program makes: several tensors in a pair, a
// tuple or a struct, and tensors that are made of another one.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_RETURNED_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_RETURNED_H

#include "Code/ProgramIndex.h"

#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace accel::migrate {

/// One of the values that a call returns together.
struct ReturnedValue {
  const clang::CallExpr *Call = nullptr;
  unsigned Index = 0;
};

/// What `x` is of `auto [x, y] = next()`, `next().first`, and
/// `std::get<0>(batch)` of a local variable.
std::optional<ReturnedValue> returnedValueOf(const clang::Expr *E);

/// The assignment `std::tie(x, y) = next()`: the call and the variables, null
/// for what is no variable.
struct Tied {
  const clang::CallExpr *Call = nullptr;
  llvm::SmallVector<const clang::ValueDecl *, 4> Variables;
};
std::optional<Tied> tiedOf(const clang::CXXOperatorCallExpr *Assignment);

/// What value `Index` is made from in each return of a function; empty where a
/// return does not list its values.
llvm::SmallVector<const clang::Expr *, 2>
returnedFrom(const clang::FunctionDecl *Body, unsigned Index);

/// The first tensor that a function of the program is given, which calculates with
/// it as a whole, and reads none of its elements or rows; where it is given others,
/// too, only a variable; or null.
const clang::Expr *leadingArgumentOf(const clang::Expr *E,
                                     const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_RETURNED_H
