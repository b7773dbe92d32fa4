//===- Enters.h - What enters -----------------------------------*- C++ -*-===//
//
// Loaders, and the tensors that models read in a training step and that no
// loader gave (Batches.h). Cut.h says what is distributed from there on.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_ENTERS_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_ENTERS_H

#include "Batches.h"
#include "Buffers.h"
#include "Evaluated.h"
#include "Code/Subject.h"

namespace accel::migrate {

/// Where loaders are made.
class LoaderFacts : public Subject {
public:
  using Subject::Subject;
  void namedCall(const clang::CallExpr *E, const clang::FunctionDecl *F,
                 llvm::StringRef Name) override;
};

/// The batches of the unit's training loops.
class Entering : private Unit {
public:
  Entering(const Unit &U, Cut &Cuts) : Unit(U), Cuts(Cuts) {}
  /// Adds them, to `Cuts` too, and says of each loop what is shared out in it.
  void addBatches();

private:
  /// What is placed like a batch.
  struct Buffers {
    std::set<const clang::ValueDecl *> Variables;
    std::set<const clang::Expr *> Made;
  };
  Buffers addBuffers(llvm::ArrayRef<Batch> Batches);
  void enter(llvm::ArrayRef<Batch> Batches);
  void addSampled(std::vector<Batch> &Batches, const Buffers &Placed);
  void addEdits();
  void noteLoops(llvm::ArrayRef<Batch> Batches);

  Cut &Cuts;
  /// What is shared out, with its text.
  std::vector<std::pair<Batch, TextRange>> Entered;
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_ENTERS_H
