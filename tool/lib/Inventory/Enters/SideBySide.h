//===- SideBySide.h - Batches that are declared side by side ----*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SIDEBYSIDE_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SIDEBYSIDE_H

#include "Batches.h"

namespace accel::migrate {

/// `auto x = data.index_select(0, rows); auto y = targets.index_select(0, rows);`: one
/// line behind them shares them all out.
struct SideBySide {
  const clang::FunctionDecl *In;
  std::vector<const clang::VarDecl *> Variables;
  std::vector<const clang::Expr *> Batches; ///< What the variables are made of.
  const clang::Stmt *Last; ///< The last declaration.
};

/// Where at least two variables that can be assigned to are made of all of a batch by
/// declarations that follow each other. One that reads another is none of them: it has
/// to have what was shared out.
std::vector<SideBySide> findSideBySide(llvm::ArrayRef<Batch> Batches);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SIDEBYSIDE_H
