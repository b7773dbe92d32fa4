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
    Result.MaybeFolded |= Lead.Scaled;
    return Result;
  }
  if (Lead.Constant == -1) {
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
  const Value &Lead = leading(Shape->V);
  bool OnlyLead = Lead.is(Placement::LocalSize) && !Lead.Scaled;
  for (unsigned I = 1; I < Shape->V.Elements.size(); ++I)
    OnlyLead &= Shape->V.Elements[I].replicated();
  if (!OnlyLead)
    return unknown("ACL0120", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' has the size of the batch elsewhere than in front, "
                       "or a multiple of it",
                   "Make the dimension of the samples the first.");
  shape(Shape->V);
  const unsigned Rank = Shape->V.Elements.size();
  return Value::rowsOf(Rank ? Rank : 1, Rank ? int(Rank) : -1);
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
  if (Batch == Zero::Perhaps)
    return unknown("ACL0129", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' may be the size of this process's part of the batch",
                   "Write the dimension as a constant that counts from the "
                   "front.");
  Value V = Value::make(Placement::LocalSize);
  V.Sizes = {Call.Call};
  V.Scaled = Self.MaybeFolded;
  return V;
}

/// Views, transposes and the like: where do the samples go?
Value Interpreter::reshaped(Op Kind, const OpCall &Call) {
  const Value Self = Call.Operands.empty() ? Value() : Call.Operands[0].V;
  switch (Kind) {
  case Op::View:
    return viewed(Call);
  case Op::ViewAs: {
    const Value &Other = Call.Operands.back().V;
    if (Self.rows() && Other.rows()) {
      Value V = rowsLike(Call, Other.MinRank, Other.Rank);
      V.MaybeFolded = Self.MaybeFolded || Other.MaybeFolded;
      return V;
    }
    if (Self.reduced() && Other.replicated())
      return Self;
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
    Value V = rowsLike(Call, *Dim > 0 ? 2 : 1, -1);
    V.MaybeFolded |= isBatchDim(*Dim, Self) == Zero::Yes;
    return V;
  }
  case Op::Transpose:
  case Op::Permute:
  case Op::TransposeMatrix: {
    if (auto Bad = notFirst(Call))
      return *Bad;
    bool Keeps = false;
    unsigned MinRank = Self.MinRank;
    if (Kind == Op::Transpose && Call.Operands.size() == 3) {
      Keeps = true;
      for (unsigned I : {1, 2}) {
        const std::optional<int64_t> Dim = Call.Operands[I].V.Constant;
        Keeps &= Dim && isBatchDim(*Dim, Self) == Zero::No;
        if (Dim && *Dim > 0)
          MinRank = std::max<unsigned>(MinRank, *Dim + 1);
      }
    } else if (Kind == Op::Permute &&
               Call.Operands.size() == 2) {
      const Value &Order = Call.Operands[1].V;
      Keeps = leading(Order).Constant == 0;
      MinRank = std::max<unsigned>(MinRank, Order.Elements.size());
    }
    if (Keeps)
      return rowsLike(Call, MinRank, Self.Rank);
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' may move the samples away from dimension 0",
                   "Count the dimensions from the front, and keep the one of "
                   "the samples in front.");
  }
  case Op::Squeeze: {
    if (Self.reduced())
      return Self;
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Dims D = dimsOf(Call);
    bool Keeps = D.State == Dims::Known;
    for (int64_t Dim : D.List)
      Keeps &= isBatchDim(Dim, Self) == Zero::No;
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
    const bool Keeps =
        Dim && (*Dim > 0 ||
                (*Dim < 0 && static_cast<int64_t>(Self.MinRank) + 1 + *Dim > 0));
    if (!Keeps)
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' puts a dimension before the one of the samples",
                     "Keep the dimension of the samples in front.");
    return rowsLike(Call, Self.MinRank + 1, Self.Rank > 0 ? Self.Rank + 1 : -1);
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
      addOrigins(V, Self);
      return V;
    }
    const bool Repeats = Call.Name == "repeat" || Call.Name == "tile";
    const bool Keeps = Self.rows() && Rest &&
                       (Count <= Self.MinRank || int(Count) == Self.Rank) &&
                       (Lead.Constant == (Repeats ? 1 : -1) ||
                        (!Repeats && Lead.is(Placement::LocalSize) &&
                         !Lead.Scaled));
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
