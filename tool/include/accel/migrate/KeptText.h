//===- KeptText.h - Text that is not to be changed --------------*- C++ -*-===//
//
// What a person marks stays as it is:
//
//   // accel-migrate: off
//   …
//   // accel-migrate: on
//
//   torch::save(log, path);  // accel-migrate: keep
//
// And what the preprocessor left out was not looked at, which is said.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_KEPTTEXT_H
#define ACCEL_MIGRATE_KEPTTEXT_H

#include "accel/migrate/Edit.h"

namespace accel::migrate {

/// Takes back the output statements' changes in marked text, so that they print
/// on every process; any other change there is needed, and refuses the unit.
/// Markers that are not understood refuse it as well.
void respectMarkers(UnitPlan &Unit);

/// Refuses the unit if one of the parts that the preprocessor left out has
/// training code; otherwise notes the others in the files that change.
void reportUnseen(UnitPlan &Unit);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_KEPTTEXT_H
