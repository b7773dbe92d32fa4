//===- OptionalModels.h - Models that there may not be ----------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_OPTIONALMODELS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_OPTIONALMODELS_H

#include "Code/ProgramIndex.h"

namespace accel::migrate {

/// Whether `S` asks if there is a model: `if (teacher)`, `teacher != nullptr`,
/// `teacher.is_empty()`.
bool asksFor(const clang::Stmt *S, const clang::ValueDecl *Model);

/// Whether a model is only made under a condition, and asked for: `Linear
/// adapter{nullptr}; if (hint > 0) adapter = Linear(8, 4);`. prepare() takes no empty
/// one.
bool isOptional(const clang::ValueDecl *Model, const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_LEARNS_OPTIONALMODELS_H
