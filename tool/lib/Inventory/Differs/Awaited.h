//===- Awaited.h - Tasks that are waited for at once ------------*- C++ -*-===//
//
// `std::async(std::launch::async, train, net).get();` starts a thread, and nothing
// of the training runs beside it: deferred, it does the same in the thread that
// waits, and all processes meet in the same order.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_AWAITED_H
#define ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_AWAITED_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

/// Whether the future that an expression, `Path.back()`, gives is waited for before
/// anything that other processes meet in: in the expression itself, or in a
/// statement of the same block behind it. Where the function `In` returns it, its
/// callers wait so; `Depth` counts such functions.
bool isAwaitedAtOnce(llvm::ArrayRef<const clang::Stmt *> Path,
                     const clang::FunctionDecl *In, const ProgramIndex &Index,
                     unsigned Depth = 0);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_AWAITED_H
