//===- Lint.h - Collective calls that not every process makes ---*- C++ -*-===//
//
// For programs that use accel, written by hand or by the tool. A process that
// leaves out a collective call leaves the others waiting, or meets them in
// another one, with wrong numbers.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LINT_H
#define ACCEL_MIGRATE_LINT_H

#include "accel/migrate/Planner.h"

namespace accel::migrate {

enum class LintScope {
  /// What ranks and clocks decide: certain enough to hold the tool's own output
  /// back.
  OwnOutput,
  /// Also what is decided by a process's batch, where each has its own.
  All,
};

/// Looks through the user's functions; the findings are in the order of the
/// text.
std::vector<Finding> lintCollectives(clang::ASTContext &Context,
                                     const PlanOptions &Options,
                                     LintScope Scope);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LINT_H
