//===- FromHost.h - Tensors of the host's numbers ---------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FROMHOST_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FROMHOST_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

/// Whether `E` is a list of numbers in one dimension, as an environment gives them:
/// `torch::tensor({x, speed})`, `torch::tensor(state)` of a std::vector<float>,
/// `torch::from_blob(state.data(), {4})`, or what a function of the program makes so.
/// To the model of the call `ReadBy`, which is given nothing else and does not make rows
/// of it first (`x.unsqueeze(1)`), they are the features of one sample: there are no
/// rows to share out. Of whole numbers, which may be those of many samples, nothing is
/// known.
bool isObservation(const clang::Expr *E, const clang::CallExpr *ReadBy,
                   const ProgramIndex &Index);

/// Whether `E` lies over memory that the host may fill at any time:
/// `torch::from_blob(memory, sizes)`, or a view of it.
bool isLaidOverMemory(const clang::Expr *E);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_FROMHOST_H
