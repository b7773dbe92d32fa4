//===- Elementwise.cpp - Operations element by element --------------------===//

#include "Operations.h"


using namespace accel::migrate;
using namespace clang;

/// Element by element over all tensors among the operands.
Value Interpreter::pointwise(const OpCall &Call) {
  Value Result;
  bool Rows = false, Wide = false;
  int Rank = -1;
  unsigned Least = ~0u;
  const Operand *Reduced = nullptr;
  for (const Operand &O : Call.Operands) {
    addOrigins(Result, O.V);
    if (O.V.rows()) {
      const bool Differ =
          Rows && ((Rank > 0 && O.V.Rank > 0 && Rank != O.V.Rank) ||
                   (Rank > 0 && O.V.MinRank > unsigned(Rank)) ||
                   (O.V.Rank > 0 && Result.MinRank > unsigned(O.V.Rank)));
      if (Differ)
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' combines tensors of different numbers of "
                           "dimensions, and so each sample with each other",
                       "Bring both to the same shape, for example with "
                       "squeeze(1).");
      const bool Apart =
          Rows && (Result.Dim != O.V.Dim || Result.TakeTurns != O.V.TakeTurns ||
                   ((Result.Dim || O.V.Dim) && (Rank < 0 || Rank != O.V.Rank)));
      if (Apart)
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' combines tensors whose samples are not known to "
                           "be in the same dimension",
                       "Bring the dimension of the samples to the front in "
                       "both.");
      Result.Dim = O.V.Dim;
      Result.TakeTurns = O.V.TakeTurns;
      Rank = Rows && Rank != O.V.Rank ? -1 : O.V.Rank;
      Result.MinRank = std::max(Result.MinRank, O.V.MinRank);
      Least = std::min(Least, O.V.MinRank);
      Result.MaybeFolded |= O.V.MaybeFolded;
      Rows = true;
    } else if (O.V.reduced()) {
      Reduced = &O;
    }
  }
  // What has fewer dimensions is spread along the samples: they are aligned
  // from the last one.
  const Operand *Whole = nullptr;
  for (const Operand &O : Call.Operands)
    if (Rows && O.V.replicated() && O.Tensors) {
      const bool Below = O.V.Rank >= 0 && unsigned(O.V.Rank) + Result.Dim < Least;
      Wide |= !Below;
      if (O.V.MayHoldBatch && !Below)
        Whole = &O;
    } else if (O.V.replicated() && O.Tensors && O.V.MayHoldBatch) {
      Whole = &O;
    }
  if (Reduced) {
    if (Rows)
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' uses a statistic of the batch for each sample",
                     MixRemedy);
    const Value Why =
        unknown("ACL0126", Call.Call,
                "'" + spelled(Call.Call) +
                    "' is a function of the mean or sum over this process's "
                    "part, which is not that of the whole batch",
                "Read the mean with item() first and calculate with the "
                "number.");
    if (inCallee() || BatchDepth == 0 || Call.InPlace)
      return Why;
    // A number for people to read: calculated from the global means and sums.
    for (const Operand &O : Call.Operands)
      if (O.V.reduced())
        Out->Reads.push_back({O.E, O.V.P, Top, Stack.back()});
    Result.P = Placement::Replicated;
    Result.Roots.clear();
    Result.Gathered = Why.Why;
    return Result;
  }
  if (Whole)
    noteWholeShape(Whole->V, Result.Dim);
  if (Whole)
    return unknown("ACL0130", Whole->E,
                   "'" + spelled(Whole->E) +
                       "' may have a value for each sample of the whole batch, "
                       "and meets this process's part of it",
                   "Make it from the batch's own size (x.size(0)), or split it "
                   "with accelerator.shard_batch(x).");
  Result.P = Placement::Rows;
  Result.Rank = Wide ? -1 : Rank;
  Result.MinRank = std::max(Result.MinRank, 1u);
  return Result;
}

Value Interpreter::added(const OpCall &Call) {
  // sum += loss, where the sum is kept over the batches.
  if (Call.InPlace && Call.Operands.size() > 1 &&
      Call.Operands[0].V.replicated() && Call.Operands[1].V.reduced()) {
    const Value Read = readOut(Call.Operands[1].V, Call.Operands[1].E);
    if (Read.replicated()) {
      Value Result = Call.Operands[0].V;
      addOrigins(Result, Read);
      return Result;
    }
  }
  Placement P = Placement::Replicated;
  for (const Operand &O : Call.Operands) {
    if (O.V.replicated())
      continue;
    if (P == Placement::Replicated)
      P = O.V.P;
    else if (P != O.V.P)
      return O.V.rows() || P == Placement::Rows
                 ? pointwise(Call)
                 : unknown("ACL0125", Call.Call,
                           "'" + spelled(Call.Call) +
                               "' adds a mean over the batch and a sum over "
                               "the batch, which are averaged in different "
                               "ways",
                           "Make both means, or both sums.");
  }
  if (P == Placement::Rows)
    return pointwise(Call);
  Value Result = Value::make(P);
  bool Constant = false;
  for (const Operand &O : Call.Operands) {
    addOrigins(Result, O.V);
    // The factor `alpha` of add() is no summand.
    Constant |= O.V.replicated() && O.Name != "alpha";
  }
  if (P == Placement::SumOfRows && Constant)
    return unknown("ACL0125", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' adds something to a sum over the batch that each "
                       "process would add once more",
                   "Make the loss a mean, or add it to what item() "
                   "returned.");
  return Result;
}

Value Interpreter::multiplied(const OpCall &Call, bool Divide) {
  const Operand &A = Call.Operands[0];
  const Operand &B = Call.Operands[1];
  Value Result;
  addOrigins(Result, A.V);
  addOrigins(Result, B.V);
  // A mean or a sum, times or divided by what is the same for all.
  if (A.V.reduced() && B.V.replicated() && !B.V.MayHoldBatch) {
    Result.P = A.V.P;
    return Result;
  }
  if (!Divide && B.V.reduced() && A.V.replicated() && !A.V.MayHoldBatch) {
    Result.P = B.V.P;
    return Result;
  }
  return pointwise(Call);
}
