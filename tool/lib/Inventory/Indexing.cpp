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
  for (const Value &V : Parts)
    if (V.Dim != Each.Dim || V.TakeTurns != Each.TakeTurns ||
        (Each.Dim && V.Rank < 0))
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' puts tensors together whose samples are not in the "
                         "same dimension");
  Value Wide = Each;
  Wide.OneInFront = false;
  // A new dimension before the samples' moves them on.
  if (Stack && D.State != Dims::Unclear && !Each.TakeTurns) {
    const int64_t At = D.State == Dims::Known ? D.List.front() : 0;
    if (At >= 0 && At <= static_cast<int64_t>(Each.Dim)) {
      Wide.MinRank += 1;
      Wide.Rank += Wide.Rank > 0;
      Wide.Dim += 1;
      Wide.Elements.clear();
      return Wide;
    }
  }
  Wide.MinRank += Stack;
  if (Wide.Rank > 0)
    Wide.Rank += Stack;
  if (!Each.rows() || D.State == Dims::Unclear ||
      isBatchDim(Dim, Wide) != Zero::No) {
    if (std::optional<Value> Whole = joinedWhole(Call))
      return *Whole;
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' puts parts of the batch behind each other, so that "
                       "the samples do not stand in their order any more",
                   "Put them together along another dimension, or before the "
                   "batch is split.");
  }
  Wide.Elements.clear();
  return Wide;
}

/// Batches behind each other, `torch::cat({x, y})`, are those of one device when
/// each is gathered first. The result has no gradient (`readOut`).
std::optional<Value> Interpreter::joinedWhole(const OpCall &Call) {
  const Expr *Parts = bare(Call.Operands[0].E);
  while (const auto *Made = dyn_cast<CXXConstructExpr>(Parts)) {
    if (Made->getNumArgs() == 0)
      return std::nullopt;
    Parts = bare(Made->getArg(0));
  }
  if (const auto *List = dyn_cast<CXXStdInitializerListExpr>(Parts))
    Parts = bare(List->getSubExpr());
  const auto *List = dyn_cast<InitListExpr>(Parts);
  const std::vector<Value> &Values = Call.Operands[0].V.Elements;
  if (!List || List->getNumInits() != Values.size() || inCallee() ||
      !llvm::all_of(Values, [](const Value &V) { return V.plainRows(); }))
    return std::nullopt;
  Value Result;
  for (unsigned I = 0; I < Values.size(); ++I) {
    const Value V = readOut(Values[I], List->getInit(I));
    if (!V.replicated())
      return std::nullopt;
    addOrigins(Result, V);
  }
  Result.Roots.clear();
  Result.MayHoldBatch = true;
  return Result;
}

/// `table.index_select(0, x)`, x a number for each sample: a row of the table
/// for each. Every process has the whole table, whatever it counts.
std::optional<Value> Interpreter::lookedUp(const OpCall &Call) {
  if (Call.Name != "index_select" || Call.Operands.size() != 3)
    return std::nullopt;
  const Value &Table = Call.Operands[0].V, &Rows = Call.Operands[2].V;
  if (!Table.replicated() || Call.Operands[1].V.Constant != 0 ||
      !Rows.plainRows())
    return std::nullopt;
  Value Result = Rows;
  addOrigins(Result, Table);
  Result.Rank = Table.Rank;
  Result.MinRank = std::max(1u, Table.MinRank);
  Result.OneInFront = false;
  return Result;
}

/// `...` as an index.
static bool isEllipsis(const Expr *E) {
  E = unconverted(E);
  if (const auto *Text = dyn_cast<StringLiteral>(E))
    return Text->getString() == "...";
  const auto *Ref = dyn_cast<DeclRefExpr>(E);
  return Ref && Ref->getDecl()->getDeclName().isIdentifier() &&
         Ref->getDecl()->getName() == "Ellipsis" && isTorch(Ref->getDecl());
}

/// `x.index_put_({"...", Slice(0, n)}, y)`: each sample of x is given its own of
/// y, or what all share.
std::optional<Value> Interpreter::putAt(const OpCall &Call) {
  if (Call.Operands.size() < 3)
    return std::nullopt;
  const Value &Self = Call.Operands[0].V, &Put = Call.Operands[2].V;
  const auto *List = dyn_cast<InitListExpr>(bare(Call.Operands[1].E));
  if (!List || List->getNumInits() == 0 || !Self.plainRows() ||
      !Call.Operands[1].V.replicated())
    return std::nullopt;
  const std::optional<Value> At = sliced(Call, *List);
  if (!At || !At->plainRows())
    return std::nullopt;
  const bool Alike = Put.plainRows() && At->Rank > 0 && Put.Rank == At->Rank;
  if (!Alike && !(Put.replicated() && !Put.MayHoldBatch))
    return std::nullopt;
  Value Result = Self;
  addOrigins(Result, Put);
  Result.Elements.clear();
  return Result;
}

/// An index of numbers and slices that leaves all samples; nothing for others.
std::optional<Value> Interpreter::sliced(const OpCall &Call,
                                         const InitListExpr &List) {
  const Value &Self = Call.Operands[0].V;
  int64_t Dim = 0, Removed = 0, RemovedBefore = 0;
  unsigned Advanced = 0;
  bool Tensor = false, Kept = false;
  for (const Expr *Init : List.inits()) {
    const Expr *E = bare(Init);
    const CXXRecordDecl *Class = nullptr;
    if (isEllipsis(E)) {
      // The dimensions that the others leave, the samples' among them.
      if (Dim > Self.Dim || Self.MinRank < List.getNumInits() + Self.Dim)
        return std::nullopt;
      Kept = true;
      Dim = Self.Dim + 1;
      continue;
    }
    while (const auto *Made = dyn_cast<CXXConstructExpr>(E)) {
      Class = Made->getConstructor()->getParent();
      if (Class->getName() == "Slice") {
        const bool All = llvm::all_of(Made->arguments(), [](const Expr *A) {
          return isa<CXXDefaultArgExpr>(A);
        });
        if (Dim == Self.Dim && !All)
          return std::nullopt;
        Kept |= Dim == Self.Dim;
        break;
      }
      if (Made->getNumArgs() != 1)
        return std::nullopt;
      E = bare(Made->getArg(0));
      Class = nullptr;
    }
    if (!Class) {
      if (Dim == Self.Dim)
        return std::nullopt;
      ++Advanced;
      if (isTensor(E->getType())) {
        Tensor = true;
      } else if (E->getType()->isIntegerType() &&
                 !E->getType()->isBooleanType()) {
        ++Removed;
        RemovedBefore += Dim < Self.Dim;
      } else {
        return std::nullopt; // "...", None, true
      }
    }
    ++Dim;
  }
  // Several indices with a tensor among them: their dimensions go to the front.
  if (Tensor && (Advanced > 1 || Self.Dim != 0))
    return std::nullopt;
  if (!Kept && Dim <= static_cast<int64_t>(Self.Dim))
    Kept = true; // The index ends before it.
  if (!Kept)
    return std::nullopt;
  const unsigned Least = std::max<unsigned>(Self.MinRank, Dim);
  Value V = rowsLike(Call, std::max<int64_t>(int64_t(Least) - Removed, 1),
                     Tensor || Self.Rank < 0 ? -1 : Self.Rank - int(Removed));
  V.Dim -= RemovedBefore;
  V.OneInFront = false;
  return V;
}

Value Interpreter::indexed(Op Kind, const OpCall &Call) {
  const Value Self = Call.Operands.empty() ? Value() : Call.Operands[0].V;
  switch (Kind) {
  case Op::IndexPut:
    if (std::optional<Value> Put = putAt(Call))
      return *Put;
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' writes into a tensor of this process's part of the "
                       "batch, and it is not seen that each sample is given its "
                       "own",
                   "Begin the index with Slice(), so that it takes all samples.");
  case Op::Index: {
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Expr *Indices =
        Call.Operands.size() > 1 ? bare(Call.Operands[1].E) : nullptr;
    const auto *List = dyn_cast_or_null<InitListExpr>(Indices);
    if (List && List->getNumInits() > 0 && !Self.TakeTurns)
      if (std::optional<Value> Kept = sliced(Call, *List))
        return *Kept;
    return gatheredOr(
        Call,
        unknown("ACL0121", Call.Call,
                "'" + spelled(Call.Call) + "' picks samples out of the batch",
                "Begin the index with Slice(), so that all samples stay."));
  }
  case Op::Subscript:
    if (Self.reduced())
      return Self;
    // x[i] where the samples are in another dimension: steps, layers.
    if (Self.rows() && Self.Dim > 0 && Call.Operands.size() == 2 &&
        !Call.Operands[1].Tensors && Call.Operands[1].V.replicated()) {
      Value V = rowsLike(Call, std::max(Self.MinRank, 2u) - 1,
                         Self.Rank > 0 ? Self.Rank - 1 : -1);
      --V.Dim;
      V.OneInFront = false;
      return V;
    }
    return gatheredOr(
        Call, unknown("ACL0121", Call.Call,
                      "'" + spelled(Call.Call) +
                          "' takes single samples out of the batch",
                      "Gather the tensor first: x = "
                      "accelerator.gather_for_metrics(x)."));
  default:
    break;
  }
  return unknown("ACL0122", Call.Call,
                 "'" + Call.Name + "' is not understood");
}
