//===- Batches.h - What enters without a loader -----------------*- C++ -*-===//
//
// In a training step the models read tensors that no loader gave: batches that
// are made by hand, noise, data that is read whole. Every process makes them in
// full; they are shared out where they are complete. A wrong guess costs speed
// and never a result.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BATCHES_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BATCHES_H

#include "Cut.h"
#include "Code/SourceText.h"

namespace accel::migrate {

/// A tensor's expression, to be shared out where it stands.
struct Batch {
  const clang::FunctionDecl *In = nullptr; ///< The function around it.
  const clang::Expr *E = nullptr;
  /// The call in a step with which a model reads it, and the function around that.
  const clang::CallExpr *ReadBy = nullptr;
  const clang::FunctionDecl *ReadIn = nullptr;
  /// A variable that holds points at which derivatives are taken. It may be made
  /// of a batch.
  bool Points = false;
  /// Its samples are in dimension 1 (Layout.h), not in dimension 0.
  bool StepsFirst = false;
};

/// Constants, states, masks and single samples, `data[i]`: nothing is gained by
/// sharing them out.
bool isNoBatch(const clang::Expr *E, const clang::ASTContext &Context);

/// One image, one observation: `x.unsqueeze(0)`, `image.view({1, 3, 32, 32})`,
/// `torch::rand({1, 4})`.
bool makesOneRow(const clang::CallExpr *E, const clang::ASTContext &Context);

/// Those of the whole unit, each expression once. `OnlyWhole`: only what is read
/// where a model is given nothing that is distributed.
std::vector<Batch> findBatches(const ProgramIndex &Index, const Cut &Loaded,
                               SourceText &Text, bool OnlyWhole = false);

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_BATCHES_H
