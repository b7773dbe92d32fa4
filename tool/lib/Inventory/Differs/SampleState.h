//===- SampleState.h - Data sets that change with each sample ---*- C++ -*-===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_SAMPLESTATE_H
#define ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_SAMPLESTATE_H

namespace clang {
class Expr;
} // namespace clang

namespace accel::migrate {
struct ProgramIndex;

/// Where a data set's `get` changes what the data set keeps, numbers or the memory of
/// tensors, so that a process which loads its own samples only would come to have
/// another data set; null where it is seen to change nothing. What it keeps anew, a
/// cache's entry, is no change.
const clang::Expr *changeBySamples(const ProgramIndex &Index);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_DIFFERS_SAMPLESTATE_H
