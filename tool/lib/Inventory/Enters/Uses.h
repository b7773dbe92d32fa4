//===- Uses.h - What a function does with its tensors -----------*- C++ -*-===//
//
// Before a variable is shared out where it is made: is it written, trained, or
// kept by somebody?
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_USES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_USES_H

#include "Returned.h"

#include <map>

namespace accel::migrate {

/// What a function does with one of its variables that holds a tensor.
struct Uses {
  std::vector<const clang::Expr *> Made; ///< What it is given as a whole.
  std::vector<ReturnedValue> Tied;       ///< What std::tie gives it.
  std::vector<const clang::Expr *> Elements; ///< What a list of it is given.
  bool Written = false; ///< Its memory is written, or its elements are.
  bool Leaf = false;    ///< It requires gradients of its own.
  bool Gradients = false; ///< torch::autograd::grad has made it.
  bool Handed = false;  ///< It goes to code that may keep it.
  bool ByRows = false;  ///< The host reads its elements one by one: `x[i].item()`.
  /// The parameters of functions of the program that it is given to.
  std::vector<const clang::ParmVarDecl *> Given;
};

/// Of each variable in the body of `F` and in the initialisers of a constructor.
std::map<const clang::ValueDecl *, Uses> usesIn(const clang::FunctionDecl *F);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_USES_H
