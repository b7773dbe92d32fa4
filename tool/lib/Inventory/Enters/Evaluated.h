//===- Evaluated.h - What enters an evaluation ------------------*- C++ -*-===//
//
// Batches that are made by hand, and that a model reads to be measured: validation
// losses, accuracies. As in training every process makes all of them; they are
// shared out where the model reads them. What a model does otherwise without
// training, to choose actions or to write texts, is left as it is: those batches are
// small, and their numbers are looked at one by one.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_EVALUATED_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_EVALUATED_H

#include "Batches.h"

namespace accel::migrate {

/// Whether no gradients are calculated at the end of `Path`, statements from the
/// outermost on, or a loader is read that does not train. `InStep`: in a training step,
/// where `{ NoGradGuard guard; next = target(x); }` is something that the step calculates
/// for itself.
bool isInEvaluation(llvm::ArrayRef<const clang::Stmt *> Path,
                    const ProgramIndex &Index, bool InStep);

/// What evaluations read that `Cuts` does not have, where it stands; not within
/// what is shared out as a whole.
std::vector<Batch> findEvaluated(const ProgramIndex &Index, const Cut &Cuts,
                                 llvm::ArrayRef<Batch> Shared,
                                 SourceText &Text);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_EVALUATED_H
