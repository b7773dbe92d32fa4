//===- Planner.h - From a parsed file to a plan -----------------*- C++ -*-===//
//
// The seam between the front end, which parses, and the analysis, which
// recognises (lib/Inventory) and decides (lib/Rules). The plan is plain data:
// nothing of the AST outlives the call.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_PLANNER_H
#define ACCEL_MIGRATE_PLANNER_H

#include "accel/migrate/Change.h"

#include <functional>
#include <string>

namespace clang {
class ASTContext;
} // namespace clang

namespace accel::migrate {

struct PlanOptions {
  enum LintTy {
    None,
    /// What is migrated already is looked through with what is certain.
    Output,
    /// Nothing is planned; the findings are those of --lint.
    Only,
  };
  LintTy Lint = None;
  /// Write `match_single_device(true)` (promise P2). False: Accelerate's own
  /// way to share the work, one batch of the given size per process.
  bool MatchSingleDevice = true;
  /// The unit has no main of its own, and belongs to a program whose main makes
  /// the accelerator.
  bool MainElsewhere = false;
  /// The unit trains nothing and reads what is changed for another program: its main
  /// makes an accelerator, too.
  bool Joins = false;
  /// Whether a file (by real path) may be changed; others are only read.
  std::function<bool(const std::string &RealPath)> MayEdit;
};

/// Recognises and decides. The context's traversal scope is already restricted
/// to the user's declarations; the unit has no errors. Never fails: what cannot
/// be migrated is a refusal in the plan.
Plan planMigration(clang::ASTContext &Context, const PlanOptions &Options);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_PLANNER_H
