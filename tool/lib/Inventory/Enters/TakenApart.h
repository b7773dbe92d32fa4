//===- TakenApart.h - Tensors that are read by rows, or written -*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_TAKENAPART_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_TAKENAPART_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

using Parameters = llvm::SmallVector<const clang::ParmVarDecl *, 2>;

/// The parameters of the program's functions that a call gives such an argument to.
Parameters givenBy(const clang::CallExpr *E,
                   llvm::function_ref<bool(const clang::Expr *)> IsIt,
                   const ProgramIndex &Index);

/// Whether `F`, or a function that it gives it to, takes the rows of a variable, or of a
/// struct's tensors, one by one, or reads their memory: of a tensor that is shared out
/// each row would be asked for over the network.
bool isTakenApart(const clang::ValueDecl *V, const clang::FunctionDecl *F,
                  const ProgramIndex &Index);
/// Whether they write into a variable, or into a struct's tensors, or ask for their
/// memory. Tensors that others have, too, have to stay what they are until then: what is
/// shared out is another one.
bool isWritten(const clang::ValueDecl *V, const clang::FunctionDecl *F,
               const ProgramIndex &Index);
/// isTakenApart of parameters in their functions.
bool isTakenApart(llvm::ArrayRef<const clang::ParmVarDecl *> Given,
                  const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_TAKENAPART_H
