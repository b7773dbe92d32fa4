//===- Groups.h - Batches that a model takes apart --------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_GROUPS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_GROUPS_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

/// Whether `Input` of `model.training_step(batch)` is a batch of several tensors
/// without names, a list, a pair, a tuple or a torch::data::Example, of which the
/// method gives single ones to the model's parts: `linear(batch[0])`. A list of
/// weights or of states is none.
bool isGroup(const clang::Expr *Input, const clang::CallExpr *ReadBy,
             const ProgramIndex &Index);

/// The program's functions that a call of a model runs, also through its holder:
/// `net(batch)`.
llvm::SmallVector<const clang::FunctionDecl *, 2>
bodiesRunBy(const clang::CallExpr *Call, const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_GROUPS_H
