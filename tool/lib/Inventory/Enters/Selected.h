//===- Selected.h - Rows that a step takes out of the data ------*- C++ -*-===//
//
// Where no model is seen that reads a batch, the program calculates with its data itself:
// a likelihood, a simulator, the laws of physics. What its steps take out of tensors row
// by row is the batch.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SELECTED_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SELECTED_H

#include "Code/ProgramIndex.h"

#include <vector>

namespace accel::migrate {

/// `data.index_select(0, rows)` in a step, and the function around it.
struct Selected {
  const clang::CallExpr *E;
  const clang::FunctionDecl *In;
};

/// Several rows that training steps take out of a tensor along dimension 0; not those that
/// are indices of others, nor what the program then takes apart row by row: of a tensor
/// that is shared out each row would be asked for over the network.
std::vector<Selected> findSelected(const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_SELECTED_H
