//===- Shapes.cpp - Where the samples go when shapes change ---------------===//

#include "Operations.h"

#include "Options.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

const Operand *accel::migrate::shapeOperand(const OpCall &Call) {
  for (llvm::StringRef Name : {"size", "shape", "repeats", "sizes", "dims"})
    if (const Operand *O = Call.find(Name))
      return O;
  return nullptr;
}

/// The size of the whole batch as element `I` of a shape that is spelled as a
/// list becomes that of this process's part, or a multiple. Which number it is
/// is checked when the program runs.
bool Interpreter::useLocalSize(const Expr *Shape, unsigned I) {
  const auto *List = dyn_cast<InitListExpr>(bare(Shape));
  if (!List || I >= List->getNumInits())
    return false;
  const Expr *Size = plain(List->getInit(I));
  const std::optional<int64_t> Number = constantOf(Size, Context);
  if (Number && *Number < 2)
    return false;
  Out->LocalSizes[Size] = Stack.back();
  return true;
}

/// A whole tensor meets rows: perhaps it only has to be made with the size of
/// this process's part.
void Interpreter::noteWholeShape(const Value &V, unsigned Dim) {
  if (!V.Shape || BatchDepth == 0)
    return;
  const std::pair<const Expr *, unsigned> Pair(V.Shape, Dim);
  if (!llvm::is_contained(Out->WholeShapes, Pair))
    Out->WholeShapes.push_back(Pair);
}

/// A factory whose shape the plan writes with the size of the part.
std::optional<Value> Interpreter::localFactory(const OpCall &Call) {
  const Operand *Shape = shapeOperand(Call);
  if (!Plan || !Shape)
    return std::nullopt;
  const Expr *List = bare(Shape->E);
  for (const auto &[Known, Dim] : Plan->LocalShapes) {
    if (Known != List || !useLocalSize(Shape->E, Dim))
      continue;
    const unsigned Rank = Shape->V.Elements.size();
    Value V = Value::rowsOf(Rank, Rank);
    V.Dim = Dim;
    V.OneInFront = Shape->V.Elements[0].Constant == 1;
    V.Assumed = inCallee();
    return V;
  }
  return std::nullopt;
}

Value Interpreter::viewed(const OpCall &Call) {
  Value Result = Call.Operands[0].V;
  Result.Elements.clear();
  if (Result.reduced())
    return Result;
  const Operand *Shape = shapeOperand(Call);
  if (!Shape)
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) + "' is not understood");
  if (!Result.rows())
    return unknown("ACL0120", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' gives a tensor of the whole batch the shape of this "
                       "process's part");
  const Value &Lead = leading(Shape->V);
  // [steps, samples, …] as [steps * samples, …]: the samples take turns.
  if (Result.Dim == 1 && !Result.TakeTurns && Lead.Constant == -1 &&
      llvm::all_of(llvm::ArrayRef(Shape->V.Elements).drop_front(),
                   [](const Value &V) { return V.replicated(); })) {
    Result.Dim = 0;
    Result.TakeTurns = true;
    Result.MaybeFolded = true;
    Result.OneInFront = false;
    Result.Rank = Shape->V.Elements.size();
    Result.MinRank = Result.Rank;
    return Result;
  }
  if (Result.Dim != 0 || (Result.TakeTurns && Lead.Constant != -1))
    return unknown("ACL0120", Call.Call,
                   "it cannot be seen where the samples of the batch are "
                   "behind '" +
                       spelled(Call.Call) + "'",
                   "Bring the dimension of the samples to the front before.");
  for (unsigned I = 1; I < Shape->V.Elements.size(); ++I)
    if (!Shape->V.Elements[I].replicated())
      return unknown("ACL0120", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' moves the samples away from dimension 0",
                     "Keep the dimension of the samples in front.");
  Result.Rank = Shape->V.Elements.empty() ? -1 : Shape->V.Elements.size();
  Result.MinRank = Result.Rank > 0 ? Result.Rank : 1;
  if (Lead.is(Placement::LocalSize)) {
    shape(Shape->V);
    Result.MaybeFolded |= Lead.Scaled || Lead.MaybeFolded;
    return Result;
  }
  if (Lead.Constant == -1) {
    Result.MaybeFolded = true;
    return Result;
  }
  if (useLocalSize(Shape->E, 0)) {
    Result.MaybeFolded = true;
    return Result;
  }
  return unknown(
      "ACL0120", Call.Call,
      "'" + spelled(Call.Call) +
          "' writes the size of the whole batch into a shape, and this "
          "process's part of the batch is smaller",
      "Write -1, or the tensor's own size(0), in place of the leading size.");
}

Value Interpreter::factory(const OpCall &Call) {
  const Operand *Shape = shapeOperand(Call);
  if (!Shape || !Shape->V.is(Placement::LocalSize))
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) + "' is not understood");
  // One dimension is the size of the batch; the others are no part of it.
  std::optional<unsigned> Dim;
  bool Good = true, Folded = false;
  if (Shape->V.Elements.empty()) {
    Dim = 0;
    Good = !Shape->V.Scaled;
    Folded = Shape->V.MaybeFolded;
  }
  for (unsigned I = 0; I < Shape->V.Elements.size(); ++I) {
    const Value &V = Shape->V.Elements[I];
    if (V.replicated())
      continue;
    Good &= !Dim && V.is(Placement::LocalSize) && !V.Scaled;
    Folded |= V.MaybeFolded;
    Dim = I;
  }
  if (!Good || !Dim)
    return unknown("ACL0120", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' has a multiple of the size of the batch, or the size "
                       "in several dimensions",
                   "Make the size of the batch one dimension of its own.");
  shape(Shape->V);
  const unsigned Rank = Shape->V.Elements.size();
  Value V = Value::rowsOf(Rank ? Rank : 1, Rank ? int(Rank) : -1);
  V.Dim = *Dim;
  V.MaybeFolded = Folded;
  V.OneInFront = Rank && Shape->V.Elements[0].Constant == 1;
  return V;
}

Value Interpreter::sizeOf(const OpCall &Call) {
  const Value &Self = Call.Operands[0].V;
  if (!Self.rows())
    return Value();
  const Operand *Dim = Call.find("dim");
  const std::optional<int64_t> Number =
      Dim ? Dim->V.Constant : std::optional<int64_t>();
  const Zero Batch = Number ? isBatchDim(*Number, Self) : Zero::Perhaps;
  if (Batch == Zero::No)
    return Value();
  if (Self.TakeTurns || Batch == Zero::Perhaps)
    return unknown("ACL0129", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' may be the size of this process's part of the batch",
                   "Write the dimension as a constant that counts from the "
                   "front.");
  Value V = Value::make(Placement::LocalSize);
  V.Dim = Self.Dim;
  V.Sizes = {Call.Call};
  V.MaybeFolded = Self.MaybeFolded;
  return V;
}

/// transpose, permute, t: where the samples are then.
std::optional<Value> Interpreter::moved(Op Kind, const OpCall &Call) {
  const Value &Self = Call.Operands[0].V;
  if (Self.TakeTurns)
    return std::nullopt;
  Value V = rowsLike(Call, Self.MinRank, Self.Rank);
  V.OneInFront = false;
  int64_t Batch = Self.Dim;
  // From the front; nothing where that cannot be seen.
  auto Front = [&](const std::optional<int64_t> &Dim) -> std::optional<int64_t> {
    if (!Dim || *Dim >= 0)
      return Dim;
    return Self.Rank > 0 ? std::optional<int64_t>(Self.Rank + *Dim)
                         : std::nullopt;
  };
  if (Kind == Op::TransposeMatrix) {
    if (Call.Name != "t" || Self.Rank != 2)
      return std::nullopt;
    V.Dim = 1 - Batch;
    return V;
  }
  if (Kind == Op::Transpose && Call.Operands.size() == 3) {
    const std::optional<int64_t> One = Call.Operands[1].V.Constant,
                                 Two = Call.Operands[2].V.Constant;
    if (!One || !Two)
      return std::nullopt;
    if (isBatchDim(*One, Self) == Zero::No && isBatchDim(*Two, Self) == Zero::No)
      ;
    else if (!Front(One) || !Front(Two))
      return std::nullopt;
    else
      V.Dim = *Front(One) == Batch   ? *Front(Two)
              : *Front(Two) == Batch ? *Front(One)
                                     : Batch;
    for (const std::optional<int64_t> &Dim : {One, Two})
      if (*Dim >= 0)
        V.MinRank = std::max<unsigned>(V.MinRank, *Dim + 1);
    return V;
  }
  if (Kind == Op::Permute && Call.Operands.size() == 2) {
    const std::vector<Value> &Order = Call.Operands[1].V.Elements;
    for (unsigned I = 0; I < Order.size(); ++I) {
      const std::optional<int64_t> From = Order[I].Constant;
      if (!From)
        return std::nullopt;
      const int64_t Dim = *From < 0 ? *From + int64_t(Order.size()) : *From;
      if (Dim != Batch)
        continue;
      V.Dim = I;
      V.Rank = Order.size();
      V.MinRank = Order.size();
      return V;
    }
  }
  return std::nullopt;
}

/// Views, transposes and the like: where do the samples go?
Value Interpreter::reshaped(Op Kind, const OpCall &Call) {
  const Value Self = Call.Operands.empty() ? Value() : Call.Operands[0].V;
  switch (Kind) {
  case Op::View:
    return viewed(Call);
  case Op::ViewAs: {
    const Value &Other = Call.Operands.back().V;
    if (Self.plainRows() && Other.plainRows()) {
      Value V = rowsLike(Call, Other.MinRank, Other.Rank);
      V.MaybeFolded = Self.MaybeFolded || Other.MaybeFolded;
      return V;
    }
    if (Self.reduced() && Other.replicated())
      return Self;
    // A table that all samples share. One with a row for each sample of the
    // whole batch does not fit, which the operation itself finds out.
    const bool Shared = !Self.MayHoldBatch || Self.Rank < 0 ||
                        Self.Rank + Other.Dim < Other.MinRank;
    if (Call.Name == "expand_as" && Self.replicated() && Other.rows() &&
        Shared) {
      Value V = Other;
      addOrigins(V, Self);
      V.Elements.clear();
      return V;
    }
    return unknown("ACL0120", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' gives this process's part of the batch the shape of "
                       "something else");
  }
  case Op::Flatten: {
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Operand *Start = Call.find("start_dim");
    std::optional<int64_t> Dim = Start ? Start->V.Constant : 0;
    if (const Operand *O = Call.find("options"))
      if (const auto Options = optionsOf(O->E, Context))
        if (const Expr *Given = Options->find("start_dim"))
          Dim = constantOf(Given, Context);
    if (!Dim || isBatchDim(*Dim, Self) == Zero::Perhaps)
      return unknown("ACL0120", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' may flatten the dimension of the samples");
    if (Self.Dim == 1 && *Dim == 0) {
      Value V = rowsLike(Call, 1, -1);
      V.Dim = 0;
      V.TakeTurns = V.MaybeFolded = true;
      V.OneInFront = false;
      return V;
    }
    if (Self.Dim != 0 && *Dim <= static_cast<int64_t>(Self.Dim))
      return unknown("ACL0120", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' flattens the dimension of the samples with others");
    Value V = rowsLike(Call, *Dim > 0 ? Self.Dim + 2 : 1, -1);
    V.MaybeFolded |= isBatchDim(*Dim, Self) == Zero::Yes;
    return V;
  }
  case Op::Transpose:
  case Op::Permute:
  case Op::TransposeMatrix: {
    if (auto Bad = notFirst(Call))
      return *Bad;
    if (std::optional<Value> Moved = moved(Kind, Call))
      return *Moved;
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' moves the samples to a place that cannot be seen",
                   "Count the dimensions from the front, as constants.");
  }
  case Op::Squeeze: {
    if (Self.reduced())
      return Self;
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Dims D = dimsOf(Call);
    // squeeze(): the runtime keeps the samples' dimension where one device has
    // more than one sample.
    const auto *Member = dyn_cast<CXXMemberCallExpr>(plain(Call.Call));
    if (D.State == Dims::Absent && Member && Self.plainRows() && !Call.InPlace) {
      Out->Squeezes[Member] = Stack.back();
      Value V = rowsLike(Call, 1, -1);
      V.OneInFront = false;
      return V;
    }
    bool Keeps = D.State == Dims::Known;
    for (int64_t Dim : D.List)
      Keeps &= isBatchDim(Dim, Self) == Zero::No;
    // The one layer of a state.
    if (D.State == Dims::Known && D.List.size() == 1 && D.List[0] == 0 &&
        Self.Dim > 0 && Self.OneInFront) {
      Value V = rowsLike(Call, std::max(Self.MinRank, 2u) - 1,
                         Self.Rank > 0 ? Self.Rank - 1 : -1);
      --V.Dim;
      V.OneInFront = false;
      return V;
    }
    for (int64_t Dim : D.List)
      Keeps &= Dim > static_cast<int64_t>(Self.Dim) || Self.Dim == 0;
    if (!Keeps)
      return unknown(
          "ACL0142", Call.Call,
          "'" + spelled(Call.Call) +
              "' also takes the dimension of the samples away where this "
              "process's part is a single one",
          "Name the dimension from the front, for example squeeze(1).");
    return rowsLike(Call, Self.MinRank > D.List.size() ? Self.MinRank - D.List.size() : 1,
                -1);
  }
  case Op::Unsqueeze: {
    if (Self.reduced())
      return Self;
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Operand *O = Call.find("dim");
    const std::optional<int64_t> Dim =
        O ? O->V.Constant : std::optional<int64_t>();
    const bool Behind =
        Dim && (*Dim > static_cast<int64_t>(Self.Dim) ||
                (*Dim < 0 && static_cast<int64_t>(Self.MinRank) + 1 + *Dim >
                                 static_cast<int64_t>(Self.Dim)));
    const bool Before =
        Dim && *Dim >= 0 && *Dim <= static_cast<int64_t>(Self.Dim);
    if (!Behind && !Before)
      return unknown("ACL0121", Call.Call,
                     "it cannot be seen whether '" + spelled(Call.Call) +
                         "' puts a dimension before the one of the samples",
                     "Count the dimension from the front.");
    Value V = rowsLike(Call, Self.MinRank + 1,
                       Self.Rank > 0 ? Self.Rank + 1 : -1);
    V.Dim += Before;
    V.OneInFront = Dim == 0;
    return V;
  }
  case Op::Expand: {
    const Operand *Shape = shapeOperand(Call);
    if (!Shape || Shape->V.Elements.empty())
      return unknown("ACL0120", Call.Call,
                     "'" + spelled(Call.Call) + "' is not understood");
    const Value &Lead = leading(Shape->V);
    bool Rest = true;
    for (unsigned I = 1; I < Shape->V.Elements.size(); ++I)
      Rest &= Shape->V.Elements[I].replicated();
    const unsigned Count = Shape->V.Elements.size();
    // A token of the model, repeated for each sample.
    if (Self.replicated() && !Self.MayHoldBatch && Rest &&
        Lead.is(Placement::LocalSize) && !Lead.Scaled) {
      shape(Shape->V);
      Value V = Value::rowsOf(Count, Count);
      V.MaybeFolded = Lead.MaybeFolded;
      addOrigins(V, Self);
      return V;
    }
    const bool Repeats = Call.Name == "repeat" || Call.Name == "tile";
    const bool Keeps = Self.plainRows() && Rest &&
                       (Count <= Self.MinRank || int(Count) == Self.Rank) &&
                       (Lead.Constant == (Repeats ? 1 : -1) ||
                        (!Repeats && Lead.is(Placement::LocalSize) &&
                         !Lead.Scaled && !Lead.MaybeFolded));
    if (!Keeps)
      return unknown("ACL0120", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' may repeat the samples, or put a dimension before "
                         "theirs");
    shape(Shape->V);
    return rowsLike(Call, Self.MinRank, Self.Rank);
  }
  default:
    break;
  }
  return unknown("ACL0122", Call.Call,
                 "'" + Call.Name + "' is not understood");
}
