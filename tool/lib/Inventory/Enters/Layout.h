//===- Layout.h - Where a batch's samples are -------------------*- C++ -*-===//
//
// LibTorch's layers of attention take `[steps, samples, features]`, and so do its
// recurrent ones unless they are told `batch_first(true)`; so do models that go
// through the steps themselves. Who gives a model such a batch shares out its
// samples, dimension 1: every step wants all the others. So are the edges of a graph,
// of which a model takes row 0 and row 1. A wrong guess costs speed and never a result.
//
//===----------------------------------------------------------------------===//

#ifndef ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_LAYOUT_H
#define ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_LAYOUT_H

#include "Code/ModelCalls.h"
#include "Code/ProgramIndex.h"

namespace accel::migrate {

class Layout {
public:
  explicit Layout(const ProgramIndex &Index);

  /// Whether input `I` of the model comes to such a layer, or to such code of the
  /// model's own, as it is laid out; also where function `In`, which calls the model,
  /// gives what comes of it to another one: `attention(embedding(x))`.
  bool hasStepsFirst(const ModelCall &Call, unsigned I,
                     const clang::FunctionDecl *In) const;

  /// Whether `E` is sure to have the dimensions of its leading operand:
  /// `x.to(device)`, `x.slice(0, i, i + n)`.
  static bool isLaidOutLikeOperand(const clang::Expr *E);

private:
  bool takesStepsFirst(const ModelCall &Call, unsigned I, unsigned Depth) const;
  bool feedsStepsFirst(const ModelCall &Call, llvm::ArrayRef<ModelCall> Others,
                       unsigned Depth) const;

  bool BatchFirst = false; ///< The program has recurrent layers that are told so.
};

} // namespace accel::migrate

#endif // ACCEL_MIGRATE_LIB_INVENTORY_ENTERS_LAYOUT_H
