//===- Inventory.h - From the AST to facts ----------------------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_INVENTORY_H
#define ACCEL_MIGRATE_INVENTORY_H

#include "accel/migrate/Planner.h"
#include "accel/migrate/TrainingProgram.h"

namespace accel::migrate {

/// Everything in the unit that has to do with training, found by type and by
/// what the code does, never by a name that the person chose. Reads the
/// context's traversal scope. Function templates are read through their
/// instantiations, which must agree.
TrainingProgram takeInventory(clang::ASTContext &Context,
                              const PlanOptions &Options);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_INVENTORY_H
