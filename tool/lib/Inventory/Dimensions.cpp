//===- Dimensions.cpp - Operations along dimensions, and reductions -------===//

#include "Operations.h"

#include "Options.h"
#include "TorchTypes.h"

#include "llvm/ADT/StringMap.h"

using namespace accel::migrate;
using namespace clang;

Interpreter::Dims Interpreter::dimsOf(const OpCall &Call) {
  Dims Result;
  const Expr *Given = nullptr;
  for (const Operand &O : Call.Operands) {
    if (O.Name == "dim" || O.Name == "dims" || O.Name == "axis")
      Given = O.E;
    if (O.Name == "options" && !isa<CXXDefaultArgExpr>(O.E)) {
      const std::optional<OptionSet> Options = optionsOf(O.E, Context);
      if (!Options) {
        Result.State = Dims::Unclear;
        return Result;
      }
      if (const Expr *Dim = Options->find("dim"))
        Given = Dim;
    }
  }
  if (!Given)
    return Result;
  const Expr *E = bare(Given);
  const CXXRecordDecl *D = recordOf(E->getType());
  if (D && D->getIdentifier() && D->getName() == "nullopt_t")
    return Result;
  if (const auto *List = dyn_cast<InitListExpr>(E)) {
    for (const Expr *Init : List->inits()) {
      const std::optional<int64_t> Number = constantOf(Init, Context);
      if (!Number) {
        Result.State = Dims::Unclear;
        return Result;
      }
      Result.List.push_back(*Number);
    }
    Result.State = Result.List.empty() ? Dims::Absent : Dims::Known;
    return Result;
  }
  const std::optional<int64_t> Number = constantOf(E, Context);
  Result.State = Number ? Dims::Known : Dims::Unclear;
  if (Number)
    Result.List.push_back(*Number);
  return Result;
}

Interpreter::Zero Interpreter::isBatchDim(int64_t Dim, const Value &V) {
  const int64_t Batch = V.Dim;
  if (Dim >= 0)
    return Dim == Batch ? Zero::Yes : Zero::No;
  if (V.Rank > 0)
    return V.Rank + Dim == Batch ? Zero::Yes : Zero::No;
  return static_cast<int64_t>(V.MinRank) + Dim > Batch ? Zero::No
                                                       : Zero::Perhaps;
}

/// Works along dimensions; `Reduces` takes them away. `OverBatch` is what
/// comes of taking the batch dimension away, Unknown where that mixes.
Value Interpreter::along(const OpCall &Call, bool Reduces,
                         Placement OverBatch) {
  const Value &Self = Call.Operands[0].V;
  if (Self.reduced()) {
    if (OverBatch != Placement::Unknown)
      return Self; // A sum of means, a mean of sums: linear.
    return unknown("ACL0126", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' is a function of the mean or sum over this process's "
                       "part of the batch",
                   "Read it with item() first.");
  }
  if (!Self.rows())
    return unknown("ACL0130", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' combines a tensor of the whole batch with this "
                       "process's part");
  Dims D = dimsOf(Call);
  if (D.State == Dims::Absent) {
    static const llvm::StringMap<int64_t> Defaults = {
        {"slice", 0},      {"narrow", 0},  {"chunk", 0},
        {"split", 0},      {"sort", -1},   {"argsort", -1},
        {"topk", -1},      {"glu", -1},    {"normalize", 1},
        {"select", 0},     {"unbind", 0},  {"cosine_similarity", 1},
        {"pairwise_distance", -1},         {"median_", -1}};
    auto It = Defaults.find(Call.Name);
    if (It != Defaults.end()) {
      D.State = Dims::Known;
      D.List.push_back(It->second);
    } else if (Reduces) {
      // All of it.
      if (OverBatch == Placement::Unknown)
        return gatheredOr(
            Call, unknown("ACL0121", Call.Call,
                          "'" + spelled(Call.Call) +
                              "' is calculated over all samples of the batch "
                              "and is neither their mean nor their sum",
                          MixRemedy));
      Value Result = Value::make(OverBatch);
      addOrigins(Result, Self);
      return Result;
    } else {
      D.State = Dims::Unclear;
    }
  }
  if (D.State == Dims::Unclear)
    return unknown("ACL0121", Call.Call,
                   "the dimension that '" + spelled(Call.Call) +
                       "' works along cannot be seen",
                   "Write the dimension as a constant.");
  bool OverRows = false;
  for (int64_t Dim : D.List)
    switch (isBatchDim(Dim, Self)) {
    case Zero::No:
      break;
    case Zero::Yes:
      OverRows = true;
      break;
    case Zero::Perhaps:
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) + "' works along dimension " +
                         std::to_string(Dim) +
                         ", which may be the one of the samples",
                     "Count the dimension from the front.");
    }
  if (Self.TakeTurns && OverRows && OverBatch == Placement::Unknown)
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' works along a dimension in which the samples of the "
                       "batch take turns",
                   MixRemedy);
  for (const Operand &O : Call.Operands)
    if (&O != &Call.Operands[0] && O.Tensors) {
      if (O.V.reduced())
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' uses a statistic of the batch for each sample",
                       MixRemedy);
      if (O.V.replicated() && O.V.MayHoldBatch && Call.Name != "index_select")
        return unknown("ACL0130", O.E,
                       "'" + spelled(O.E) +
                           "' may have a value for each sample of the whole "
                           "batch, and meets this process's part of it",
                       "Split it together with the batch.");
    }
  if (OverRows) {
    if (OverBatch == Placement::Unknown)
      return gatheredOr(
          Call, unknown("ACL0121", Call.Call,
                        "'" + spelled(Call.Call) +
                            "' works along dimension 0, over the samples of "
                            "the batch",
                        MixRemedy));
    Value Result = Value::make(OverBatch);
    addOrigins(Result, Self);
    return Result;
  }
  Value Result = Self;
  for (const Operand &O : Call.Operands)
    addOrigins(Result, O.V);
  if (Reduces) {
    const Operand *Keep = Call.find("keepdim");
    const bool Keeps = Keep && Keep->V.Constant == 1;
    const bool Drops = !Keep || Keep->V.Constant == 0;
    const unsigned Count = D.List.size();
    if (!Keeps) {
      // The samples move to the front by as many as went before them.
      for (int64_t Dim : D.List) {
        if (Self.Dim == 0)
          break;
        if (!Drops || (Dim < 0 && Self.Rank < 0))
          return unknown("ACL0121", Call.Call,
                         "it cannot be seen where the samples of the batch are "
                         "behind '" +
                             spelled(Call.Call) + "'",
                         "Keep the dimension of the samples in front.");
        const int64_t At = Dim < 0 ? Self.Rank + Dim : Dim;
        Result.Dim -= At < static_cast<int64_t>(Self.Dim);
      }
      Result.OneInFront = false;
      Result.MinRank = Result.MinRank > Count ? Result.MinRank - Count : 1;
      Result.Rank = Drops && Self.Rank > 0 ? Self.Rank - int(Count) : -1;
    }
  }
  Result.Elements.clear();
  return Result;
}
