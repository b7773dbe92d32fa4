//===- Reads.cpp - Tensors whose values the program wants -----------------===//

#include "Operations.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// The program wants the value of a tensor. Behind a loop it can only be one of
/// the last batch.
void Interpreter::metricRead(const Expr *Object, const Value &V,
                             const Expr *E) {
  if (V.replicated()) {
    if (inCallee() && Splits)
      Out->WholeReads.push_back({Object, V.P, Top, Stack.back()});
    return;
  }
  // Also those that cannot be reduced: a gather may help.
  if (!V.rows() || V.plainRows() || inCallee())
    Out->Reads.push_back({Object, V.P, Top, Stack.back(), BatchDepth == 0});
  if (const Value *Bad = firstUnknown(V))
    return refuse(Bad->Why);
  if (V.plainRows() && !inCallee())
    return; // Gathered where it is read.
  if (!V.reduced())
    return refuse(
        "ACL0126", E->getExprLoc(),
        "'" + spelled(E) +
            "' reads single samples of this process's part of the batch",
        "Gather the tensor with accelerator.gather_for_metrics(x) before.");
}

/// An operation that needs all samples of the batch, outside of the model: its
/// first operand is gathered, and the result is what one device has. It has no
/// gradient, so that it may not become a part of the loss; the reason is kept
/// for that case.
Value Interpreter::gatheredOr(const OpCall &Call, Value Otherwise) {
  const Operand &Self = Call.Operands[0];
  if (inCallee() || (BatchDepth == 0 && !Self.V.LastBatch) || Call.InPlace ||
      !Self.V.plainRows() || !Self.Tensors ||
      !Self.V.Elements.empty() || !Otherwise.unknown())
    return Otherwise;
  for (const Operand &O : llvm::ArrayRef(Call.Operands).drop_front())
    if (!O.V.replicated())
      return Otherwise;
  Out->Reads.push_back(
      {Self.E, Placement::Rows, Top, Stack.back(), BatchDepth == 0});
  OpCall Whole = Call;
  Whole.Operands[0].V = Value();
  Whole.Operands[0].V.Rank = Self.V.Rank;
  Whole.Operands[0].V.MayHoldBatch = true;
  Value Result = allReplicated(opNamed(Call.Name), Whole);
  addOrigins(Result, Self.V);
  Result.Roots.clear();
  Result.Gathered = Otherwise.Why;
  Result.Copy = true;
  Result.LastBatch = false;
  return Result;
}

/// A tensor that is kept where code outside of the step sees it: what is kept
/// is the value of the whole batch. It has no gradient.
Value Interpreter::readOut(const Value &V, const Expr *Source) {
  if (inCallee() || (BatchDepth == 0 && !V.LastBatch) ||
      !(V.reduced() || V.plainRows()) || !isTensor(plain(Source)->getType()))
    return V;
  Out->Reads.push_back({Source, V.P, Top, Stack.back(), BatchDepth == 0});
  Value Result;
  addOrigins(Result, V);
  Result.Roots.clear();
  Result.LastBatch = false;
  Result.Rank = V.Rank;
  Result.MayHoldBatch = V.rows();
  Result.Gathered = reason(
      "ACL0128", Source->getExprLoc(),
      "a tensor of this process's part of the batch is kept where code outside "
      "of this step can see it, and becomes a part of a loss",
      "Keep what accelerator.gather_for_metrics(x) returns, or a number read "
      "with item().");
  return Result;
}
