//===- MemoryReads.h - What is done with the memory of tensors --*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_MEMORYREADS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_MEMORYREADS_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

/// Whether the memory that `Path` ends with (a pointer, an accessor) is only read in
/// `Body`, the function's: also through variables that keep it, as long as nothing
/// behind them may change tensors. "No" where that is not certain.
bool isMemoryOnlyRead(llvm::ArrayRef<const clang::Stmt *> Path,
                      const clang::Stmt *Body, const ProgramIndex &Index);

/// Whether the memory that `Path` ends with is kept beyond the expression: in a
/// variable, by an object that is made of it, by whoever is returned it.
bool isMemoryKept(llvm::ArrayRef<const clang::Stmt *> Path);

/// Whether it is then returned, or put into what is there already.
bool isMemoryGivenAway(llvm::ArrayRef<const clang::Stmt *> Path);

/// x.grad(), x.grad().view({-1})
bool readsGradient(const clang::Expr *E);

/// Whether something in `Body` writes into a tensor, other than into its gradient.
bool writesTensors(const clang::Stmt *Body);

/// Whether something in `Body` may write into the tensor that `V` names.
bool isWrittenInPlace(const clang::VarDecl *V, const clang::Stmt *Body);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEAVES_MEMORYREADS_H
