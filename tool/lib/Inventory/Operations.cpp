//===- Operations.cpp - Placements of tensor operations -------------------===//

#include "Interpreter.h"
#include "Options.h"
#include "TorchTypes.h"

#include "llvm/ADT/StringMap.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

namespace {
enum class Op {
  Same,
  Pointwise,
  Additive,
  Multiply,
  Divide,
  Like,
  Along,
  Mean,
  Sum,
  Reduce,
  PerSample,
  Linear,
  Conv1d,
  Conv2d,
  Conv3d,
  Embedding,
  OneHot,
  MatMul,
  Mm,
  Addmm,
  View,
  ViewAs,
  Flatten,
  Transpose,
  TransposeMatrix,
  Permute,
  Squeeze,
  Unsqueeze,
  Expand,
  Cat,
  Stack,
  Index,
  Subscript,
  Factory,
  Constant,
  Size,
  Sizes,
  Numel,
  Item,
  Host,
};
} // namespace

static std::optional<Op> opNamed(llvm::StringRef Name) {
  static const llvm::StringMap<Op> Table = [] {
    llvm::StringMap<Op> T;
#define ACCEL_OP(Kind, ...)                                                    \
  for (llvm::StringRef Name : {__VA_ARGS__})                                   \
    T[Name] = Op::Kind;
#include "Operations.def"
    return T;
  }();
  auto It = Table.find(Name);
  if (It == Table.end())
    return std::nullopt;
  return It->second;
}

/// Where something calculated from parameters meets a whole batch, the batch
/// is one that the training reads.
void Interpreter::noteMeeting(const OpCall &Call) {
  if (BatchDepth == 0)
    return;
  bool Model = false;
  for (const Operand &O : Call.Operands)
    Model |= O.V.FromModel && O.Tensors;
  if (!Model)
    return;
  for (const Operand &O : Call.Operands) {
    if (O.V.FromModel || !O.V.replicated() || !O.V.MayHoldBatch || !O.Tensors)
      continue;
    if (O.V.Roots.empty())
      Out->UnnamedBatches.push_back(Text.finding(
          "ACL0119", O.E->getExprLoc(),
          "'" + spelled(O.E) +
              "' meets what the model returned, and may have a value for each "
              "sample of the complete batch",
          "Name it first, and split it together with the batch: "
          "accelerator.shard_batch(x, y)."));
    for (const VarDecl *Root : O.V.Roots)
      if (!llvm::is_contained(Out->BatchReads, Root))
        Out->BatchReads.push_back(Root);
  }
}

Value Interpreter::evalOp(OpCall &Call) {
  std::optional<Op> Kind = opNamed(Call.Name);
  if (!Kind && llvm::StringRef(Call.Name).ends_with("_") &&
      !llvm::StringRef(Call.Name).starts_with("_")) {
    Call.Name.pop_back();
    Call.InPlace = true;
    Kind = opNamed(Call.Name);
    // Filled with numbers: uniform_(a, b), normal_(), zero_(), fill_(x).
    if (!Kind) {
      static const std::set<std::string> Fills = {
          "uniform", "normal", "zero", "fill", "random", "exponential",
          "set",     "copy",   "resize"};
      if (Fills.count(Call.Name)) {
        bool All = true;
        for (const Operand &O : Call.Operands)
          All &= O.V.replicated();
        if (All)
          return Call.Operands[0].V;
        // The runtime draws for the whole batch and keeps this part's rows.
        static const std::set<std::string> PerRow = {
            "uniform", "normal", "zero", "fill", "random", "exponential"};
        if (Call.Operands[0].V.rows() && PerRow.count(Call.Name) &&
            llvm::none_of(llvm::ArrayRef(Call.Operands).drop_front(),
                          [](const Operand &O) { return O.Tensors; }))
          return Call.Operands[0].V;
        return unknown("ACL0122", Call.Call,
                       "'" + Call.Name + "_' is not known to keep the samples "
                                         "of a batch apart",
                       "Make a new tensor instead, for example with "
                       "torch::randn_like(x).");
      }
    }
  }
  std::vector<Value> Values;
  bool Replicated = true, LocalTensor = false;
  for (const Operand &O : Call.Operands) {
    Values.push_back(O.V);
    Replicated &= O.V.replicated();
    LocalTensor |= O.V.rows() || O.V.reduced();
  }
  if (const Value *Bad = firstUnknown(Values))
    return *Bad;
  noteMeeting(Call);
  for (const Value &V : Values)
    if (V.is(Placement::PerProcess))
      return unknown("ACL0127", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' is calculated from a number that differs between "
                         "processes");
  if (Replicated)
    return allReplicated(Kind ? static_cast<int>(*Kind) : -1, Call);
  // A number made from the local size, where no shape is meant.
  const bool TakesShape =
      Kind && (*Kind == Op::Factory || *Kind == Op::View ||
               *Kind == Op::Expand);
  if (!TakesShape) {
    for (Operand &O : Call.Operands)
      if (O.V.is(Placement::LocalSize)) {
        if (Kind && (*Kind == Op::Multiply || *Kind == Op::Divide ||
                     *Kind == Op::Additive || *Kind == Op::Pointwise))
          O.V = number(O.V);
        else
          return unknown("ACL0129", Call.Call,
                         "'" + Call.Name +
                             "' depends on the size of this process's part of "
                             "the batch");
      }
    if (!LocalTensor)
      return allReplicated(Kind ? static_cast<int>(*Kind) : -1, Call);
  }
  if (std::optional<Value> Loss = evalLoss(Call))
    return *Loss;
  if (!Kind)
    return unknown("ACL0122", Call.Call,
                   "'" + Call.Name +
                       "' is not known to keep the samples of a batch apart",
                   "Write it with operations that are known, or gather its "
                   "operands first.");
  return evalKnownOp(static_cast<int>(*Kind), Call);
}

/// The leading size of a shape: its first element, or the shape of another
/// tensor as a whole.
static const Value &leading(const Value &Shape) {
  return Shape.Elements.empty() ? Shape : Shape.Elements.front();
}

static const Operand *shapeOperand(const OpCall &Call) {
  for (llvm::StringRef Name : {"size", "shape", "repeats", "sizes", "dims"})
    if (const Operand *O = Call.find(Name))
      return O;
  return nullptr;
}

/// What one device would have; what is to be known of it is whether its first
/// dimension may count samples.
Value Interpreter::allReplicated(int Kind, const OpCall &Call) {
  Value Result;
  for (const Operand &O : Call.Operands) {
    addOrigins(Result, O.V);
    if (O.Tensors)
      Result.MayHoldBatch |= O.V.MayHoldBatch;
  }
  if (Kind < 0) {
    Result.MayHoldBatch = holdsTensors(Call.Call->getType());
    return Result;
  }
  auto Dim = [&](llvm::StringRef Name) {
    const Operand *O = Call.find(Name);
    return O ? O->V.Constant : std::nullopt;
  };
  switch (static_cast<Op>(Kind)) {
  case Op::Factory:
  case Op::View:
  case Op::Expand: {
    const Operand *Shape = shapeOperand(Call);
    if (!Shape) {
      Result.MayHoldBatch = true;
      break;
    }
    const Value &Lead = leading(Shape->V);
    const Expr *Bare = bare(Shape->E);
    const auto *List = dyn_cast<InitListExpr>(Bare);
    const bool Scalar = (List && List->getNumInits() == 0) ||
                        (isa<CXXConstructExpr>(Bare) &&
                         cast<CXXConstructExpr>(Bare)->getNumArgs() == 0);
    Result.MayHoldBatch = !Scalar && Lead.Constant != 1;
    break;
  }
  case Op::Constant:
    Result.MayHoldBatch = false;
    break;
  case Op::Mean:
  case Op::Sum:
  case Op::Reduce: {
    const Dims D = dimsOf(Call);
    if (D.State == Dims::Absent ||
        (D.State == Dims::Known && llvm::is_contained(D.List, 0)))
      Result.MayHoldBatch = Call.Operands.size() > 1 &&
                            Call.Operands[1].Tensors && Result.MayHoldBatch;
    break;
  }
  case Op::Unsqueeze:
    if (Dim("dim") == 0)
      Result.MayHoldBatch = false;
    break;
  case Op::Item:
  case Op::Size:
  case Op::Sizes:
  case Op::Numel:
  case Op::Host:
    Result.MayHoldBatch = false;
    Result.FromModel = false;
    break;
  default:
    break;
  }
  return Result;
}

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
  if (Dim > 0)
    return Zero::No;
  if (Dim == 0)
    return Zero::Yes;
  if (V.Rank > 0)
    return V.Rank + Dim == 0 ? Zero::Yes : Zero::No;
  return static_cast<int64_t>(V.MinRank) + Dim > 0 ? Zero::No : Zero::Perhaps;
}

static constexpr char MixRemedy[] =
    "Compute it from the gathered batch, or without it.";

/// Element by element over all tensors among the operands.
Value Interpreter::pointwise(const OpCall &Call) {
  Value Result;
  bool Rows = false, Replicated = false;
  int Rank = -1;
  const Operand *Reduced = nullptr, *Whole = nullptr;
  for (const Operand &O : Call.Operands) {
    addOrigins(Result, O.V);
    if (O.V.rows()) {
      if (Rows && Rank > 0 && O.V.Rank > 0 && Rank != O.V.Rank)
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' combines tensors of different numbers of "
                           "dimensions, and so each sample with each other",
                       "Bring both to the same shape, for example with "
                       "squeeze(1).");
      Rank = Rows && Rank != O.V.Rank ? -1 : O.V.Rank;
      Result.MinRank = std::max(Result.MinRank, O.V.MinRank);
      Result.MaybeFolded |= O.V.MaybeFolded;
      Rows = true;
    } else if (O.V.reduced()) {
      Reduced = &O;
    } else if (O.V.replicated() && O.Tensors) {
      Replicated = true;
      if (O.V.MayHoldBatch)
        Whole = &O;
    }
  }
  if (Reduced) {
    if (Rows)
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' uses a statistic of the batch for each sample",
                     MixRemedy);
    return unknown("ACL0126", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' is a function of the mean or sum over this process's "
                       "part, which is not that of the whole batch",
                   "Read the mean with item() first and calculate with the "
                   "number.");
  }
  if (Whole)
    return unknown("ACL0130", Whole->E,
                   "'" + spelled(Whole->E) +
                       "' may have a value for each sample of the whole batch, "
                       "and meets this process's part of it",
                   "Make it from the batch's own size (x.size(0)), or split it "
                   "with accelerator.shard_batch(x).");
  Result.P = Placement::Rows;
  Result.Rank = Replicated ? -1 : Rank;
  Result.MinRank = std::max(Result.MinRank, 1u);
  return Result;
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
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' is calculated over all samples of the batch and "
                           "is neither their mean nor their sum",
                       MixRemedy);
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
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' works along dimension 0, over the samples of the "
                         "batch",
                     MixRemedy);
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
      Result.MinRank = Result.MinRank > Count ? Result.MinRank - Count : 1;
      Result.Rank = Drops && Self.Rank > 0 ? Self.Rank - int(Count) : -1;
    }
  }
  Result.Elements.clear();
  return Result;
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

Value Interpreter::evalKnownOp(int Kind, OpCall &Call) {
  const Value Self = Call.Operands.empty() ? Value() : Call.Operands[0].V;
  auto NotFirst = [&]() -> std::optional<Value> {
    if (Self.rows())
      return std::nullopt;
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' uses the batch elsewhere than as its first operand, "
                       "or a number that was calculated over it");
  };
  auto Rows = [&](unsigned MinRank, int Rank = -1) {
    Value V = Self;
    for (const Operand &O : Call.Operands)
      addOrigins(V, O.V);
    V.MinRank = MinRank;
    V.Rank = Rank;
    V.Elements.clear();
    return V;
  };
  auto WholeAmongOthers = [&]() -> std::optional<Value> {
    for (const Operand &O : llvm::ArrayRef(Call.Operands).drop_front())
      if (O.Tensors && !O.V.replicated())
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' combines the samples of the batch with each "
                           "other",
                       MixRemedy);
    return std::nullopt;
  };
  switch (static_cast<Op>(Kind)) {
  case Op::Same:
    return Self;
  case Op::Pointwise:
    return pointwise(Call);
  case Op::Additive: {
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
  case Op::Multiply:
    return multiplied(Call, false);
  case Op::Divide:
    return multiplied(Call, true);
  case Op::Like: {
    if (Self.rows()) {
      Value V = Self;
      V.FromModel = false;
      return V;
    }
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) + "' is not understood");
  }
  case Op::Along:
    return along(Call, /*Reduces=*/false, Placement::Unknown);
  case Op::Mean:
    return along(Call, /*Reduces=*/true, Placement::MeanOfRows);
  case Op::Sum:
    return along(Call, /*Reduces=*/true, Placement::SumOfRows);
  case Op::Reduce:
    // max(a, b) is element by element.
    if (Call.Operands.size() > 1 && Call.Operands[1].Tensors &&
        Call.Name != "cosine_similarity" && Call.Name != "pairwise_distance")
      return pointwise(Call);
    return along(Call, /*Reduces=*/true, Placement::Unknown);
  case Op::PerSample:
    if (auto Bad = NotFirst())
      return *Bad;
    if (auto Bad = WholeAmongOthers())
      return *Bad;
    return Rows(Self.MinRank, Self.Rank);
  case Op::Linear:
  case Op::Mm:
    if (auto Bad = NotFirst())
      return *Bad;
    if (auto Bad = WholeAmongOthers())
      return *Bad;
    return Rows(std::max(Self.MinRank, 2u), Self.Rank);
  case Op::Conv1d:
  case Op::Conv2d:
  case Op::Conv3d: {
    if (auto Bad = NotFirst())
      return *Bad;
    if (auto Bad = WholeAmongOthers())
      return *Bad;
    const int Rank = 3 + Kind - static_cast<int>(Op::Conv1d);
    return Rows(Rank, Rank);
  }
  case Op::Embedding: {
    // torch::embedding(weight, indices), F::embedding(indices, weight).
    for (const Operand &O : Call.Operands)
      if (O.Tensors && O.V.rows()) {
        Value V = O.V;
        V.MinRank = O.V.MinRank + 1;
        V.Rank = O.V.Rank > 0 ? O.V.Rank + 1 : -1;
        V.FromModel = true;
        return V;
      }
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) + "' is not understood");
  }
  case Op::OneHot: {
    if (auto Bad = NotFirst())
      return *Bad;
    const Operand *Classes = Call.find("num_classes");
    if (!Classes || isa<CXXDefaultArgExpr>(Classes->E) ||
        Classes->V.Constant == -1)
      return unknown("ACL0121", Call.Call,
                     "one_hot without a number of classes takes it from the "
                     "largest label of the batch",
                     "Give the number of classes.");
    return Rows(Self.MinRank + 1, Self.Rank > 0 ? Self.Rank + 1 : -1);
  }
  case Op::MatMul: {
    if (Call.Operands.size() < 2)
      return unknown("ACL0122", Call.Call,
                     "'" + spelled(Call.Call) + "' is not understood");
    const Value &Other = Call.Operands[1].V;
    if (Self.rows() && Other.rows()) {
      if ((Self.MinRank >= 3 && Other.MinRank >= 3) || Call.Name == "bmm")
        return Rows(3);
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' multiplies the samples of the batch with each "
                         "other",
                     MixRemedy);
    }
    if (Self.rows() && Other.replicated()) {
      if (Other.MayHoldBatch && !Other.FromModel)
        return pointwise(Call); // Names the operand.
      return Rows(std::max(Self.MinRank, 1u), -1);
    }
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' sums over the samples of the batch",
                   MixRemedy);
  }
  case Op::Addmm: {
    if (Call.Operands.size() >= 3 && Call.Operands[0].V.replicated() &&
        !Call.Operands[0].V.MayHoldBatch && Call.Operands[1].V.rows() &&
        Call.Operands[2].V.replicated()) {
      Value V = Call.Operands[1].V;
      V.FromModel = true;
      return V;
    }
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) + "' is not understood");
  }
  case Op::View:
    return viewed(Call);
  case Op::ViewAs: {
    const Value &Other = Call.Operands.back().V;
    if (Self.rows() && Other.rows()) {
      Value V = Rows(Other.MinRank, Other.Rank);
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
    if (auto Bad = NotFirst())
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
    Value V = Rows(*Dim > 0 ? 2 : 1, -1);
    V.MaybeFolded |= isBatchDim(*Dim, Self) == Zero::Yes;
    return V;
  }
  case Op::Transpose:
  case Op::Permute:
  case Op::TransposeMatrix: {
    if (auto Bad = NotFirst())
      return *Bad;
    bool Keeps = false;
    unsigned MinRank = Self.MinRank;
    if (static_cast<Op>(Kind) == Op::Transpose && Call.Operands.size() == 3) {
      Keeps = true;
      for (unsigned I : {1, 2}) {
        const std::optional<int64_t> Dim = Call.Operands[I].V.Constant;
        Keeps &= Dim && isBatchDim(*Dim, Self) == Zero::No;
        if (Dim && *Dim > 0)
          MinRank = std::max<unsigned>(MinRank, *Dim + 1);
      }
    } else if (static_cast<Op>(Kind) == Op::Permute &&
               Call.Operands.size() == 2) {
      const Value &Order = Call.Operands[1].V;
      Keeps = leading(Order).Constant == 0;
      MinRank = std::max<unsigned>(MinRank, Order.Elements.size());
    }
    if (Keeps)
      return Rows(MinRank, Self.Rank);
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' may move the samples away from dimension 0",
                   "Count the dimensions from the front, and keep the one of "
                   "the samples in front.");
  }
  case Op::Squeeze: {
    if (Self.reduced())
      return Self;
    if (auto Bad = NotFirst())
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
    return Rows(Self.MinRank > D.List.size() ? Self.MinRank - D.List.size() : 1,
                -1);
  }
  case Op::Unsqueeze: {
    if (Self.reduced())
      return Self;
    if (auto Bad = NotFirst())
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
    return Rows(Self.MinRank + 1, Self.Rank > 0 ? Self.Rank + 1 : -1);
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
    return Rows(Self.MinRank, Self.Rank);
  }
  case Op::Cat:
  case Op::Stack: {
    const Dims D = dimsOf(Call);
    const bool Stack = static_cast<Op>(Kind) == Op::Stack;
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
  case Op::Index: {
    if (auto Bad = NotFirst())
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
    return Rows(1, -1);
  }
  case Op::Subscript:
    if (Self.reduced())
      return Self;
    return unknown("ACL0121", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' takes single samples out of the batch",
                   "Gather the tensor first: x = "
                   "accelerator.gather_for_metrics(x).");
  case Op::Factory:
    return factory(Call);
  case Op::Constant:
    return unknown("ACL0122", Call.Call,
                   "'" + spelled(Call.Call) + "' is not understood");
  case Op::Size:
    return sizeOf(Call);
  case Op::Sizes: {
    if (!Self.rows())
      return Value();
    Value V = Value::make(Placement::LocalSize);
    V.Scaled = Self.MaybeFolded;
    return V;
  }
  case Op::Numel:
    if (!Self.rows())
      return Value();
    return unknown("ACL0129", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' counts the elements of this process's part of the "
                       "batch",
                   "Count with size(0) and the sizes of a sample.");
  case Op::Item:
    metricRead(Call.Operands[0].E, Self, Call.Call);
    return Value();
  case Op::Host:
    return Value();
  }
  return unknown("ACL0122", Call.Call,
                 "'" + Call.Name + "' is not understood");
}
