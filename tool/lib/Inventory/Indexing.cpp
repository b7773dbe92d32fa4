//===- Indexing.cpp - Tensors put together and taken apart ----------------===//

#include "Operations.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// torch::cat and torch::stack.
Value Interpreter::joinedTensors(Op Kind, const OpCall &Call) {
  const Value &Self = Call.Operands[0].V;
  const Dims D = dimsOf(Call);
  const bool Stack = Kind == Op::Stack;
  const std::vector<Value> &Parts = Self.Elements;
  Value Each = Parts.empty() ? Self : Parts.front();
  for (const Value &V : Parts) {
    addOrigins(Each, V);
    Each.MinRank = std::min(Each.MinRank, V.MinRank);
    if (!V.rows())
      return unknown("ACL0130", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' puts this process's part of the batch together "
                         "with something that is not split");
    if (V.Rank != Each.Rank)
      Each.Rank = -1;
  }
  const int64_t Dim = D.State == Dims::Known ? D.List.front() : 0;
  Value Wide = Each;
  Wide.MinRank += Stack;
  if (Wide.Rank > 0)
    Wide.Rank += Stack;
  if (!Each.rows() || D.State == Dims::Unclear ||
      isBatchDim(Dim, Wide) != Zero::No)
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' puts parts of the batch behind each other, so that "
                       "the samples do not stand in their order any more",
                   "Put them together along another dimension, or before the "
                   "batch is split.");
  Wide.Elements.clear();
  return Wide;
}

Value Interpreter::indexed(Op Kind, const OpCall &Call) {
  const Value Self = Call.Operands.empty() ? Value() : Call.Operands[0].V;
  switch (Kind) {
  case Op::Index: {
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Expr *Indices =
        Call.Operands.size() > 1 ? bare(Call.Operands[1].E) : nullptr;
    const auto *List = dyn_cast_or_null<InitListExpr>(Indices);
    bool Keeps = false;
    if (List && List->getNumInits() > 0) {
      const Expr *First = List->getInit(0);
      while (true) {
        First = bare(First);
        const auto *Made = dyn_cast<CXXConstructExpr>(First);
        if (!Made)
          break;
        const CXXRecordDecl *D = Made->getConstructor()->getParent();
        if (D->getName() == "Slice") {
          Keeps = llvm::all_of(Made->arguments(), [](const Expr *A) {
            return isa<CXXDefaultArgExpr>(A);
          });
          break;
        }
        if (Made->getNumArgs() != 1)
          break;
        First = Made->getArg(0);
      }
    }
    if (!Keeps)
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' picks samples out of the batch",
                     "Begin the index with Slice(), so that all samples stay.");
    return rowsLike(Call, 1, -1);
  }
  case Op::Subscript:
    if (Self.reduced())
      return Self;
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' takes single samples out of the batch",
                   "Gather the tensor first: x = "
                   "accelerator.gather_for_metrics(x).");
  default:
    break;
  }
  return unknown("ACL0122", Call.Call,
                 "'" + Call.Name + "' is not understood");
}
