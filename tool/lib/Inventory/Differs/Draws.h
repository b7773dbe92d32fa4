//===- Draws.h - Numbers of random devices that are kept --------*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DRAWS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DRAWS_H

#include <set>

namespace clang {
class CallExpr;
} // namespace clang

namespace accel::migrate {
struct ProgramIndex;

/// Draws from random devices, `device()`, that the program keeps: they are
/// assigned, given to its own code, or a field begins with them.
std::set<const clang::CallExpr *> keptDraws(const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_DRAWS_H
