//===- Operations.cpp - Placements of tensor operations -------------------===//

#include "Operations.h"

#include "TorchTypes.h"

#include "llvm/ADT/StringMap.h"

using namespace accel::migrate;
using namespace clang;

std::optional<Op> accel::migrate::opNamed(llvm::StringRef Name) {
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

const Expr *accel::migrate::unconverted(const Expr *E) {
  E = bare(E);
  while (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(E)) {
    if (Made->getNumArgs() != 1)
      break;
    E = bare(Made->getArg(0));
  }
  return E;
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
  for (const Operand &O : Call.Operands)
    if (!O.V.FromModel && O.Tensors)
      noteBatch(O.E, O.V);
}

/// Operations of which it is only known what they do with samples that are in
/// the first dimension.
static bool wantsSamplesFirst(Op Kind, llvm::StringRef Name) {
  switch (Kind) {
  case Op::PerSample:
    return Name != "layer_norm";
  case Op::Linear:
  case Op::MatMul:
  case Op::Mm:
  case Op::Addmm:
  case Op::Conv1d:
  case Op::Conv2d:
  case Op::Conv3d:
    return true;
  case Op::Along:
    return Name == "gather" || Name == "scatter" || Name == "scatter_add" ||
           Name == "index_select" || Name == "normalize" || Name == "glu";
  default:
    return false;
  }
}

/// Random numbers in the shape of something that is no batch.
static bool drawsForParameter(const OpCall &Call) {
  static const std::set<std::string> Draws = {
      "rand_like", "randn_like", "randint_like", "normal",  "uniform",
      "bernoulli", "random",     "exponential",  "dropout", "cauchy",
      "log_normal", "geometric"};
  return Draws.count(Call.Name) && !Call.Operands.empty() &&
         Call.Operands[0].Tensors && Call.Operands[0].V.FromModel &&
         !Call.Operands[0].V.MayHoldBatch;
}

/// Random numbers for each element: the runtime draws them for the whole batch.
static bool drawsNumbers(llvm::StringRef Name) {
  return Name.contains("dropout") || Name.starts_with("rand") ||
         Name == "bernoulli" || Name == "normal" || Name == "poisson" ||
         Name == "rrelu" || Name == "multinomial";
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
        if (All && !(Splits && drawsForParameter(Call)))
          return Call.Operands[0].V;
        // The runtime draws for the whole batch and keeps this part's rows.
        static const std::set<std::string> PerRow = {
            "uniform", "normal", "zero", "fill", "random", "exponential"};
        if (Call.Operands[0].V.plainRows() && PerRow.count(Call.Name) &&
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
  // What was gathered is a copy; the original would not change.
  if (Call.InPlace && Call.Operands[0].V.Copy)
    refuse(Call.Operands[0].V.Gathered);
  // Behind a loop, the last batch beside what the program has as a whole.
  if (BatchDepth == 0 && !Call.InPlace &&
      llvm::any_of(Call.Operands, [](const Operand &O) {
        return O.Tensors && O.V.replicated() && O.V.MayHoldBatch;
      }))
    for (Operand &O : Call.Operands)
      if (O.V.LastBatch)
        O.V = readOut(O.V, O.E);
  std::vector<Value> Values;
  bool Replicated = true, LocalTensor = false;
  for (const Operand &O : Call.Operands) {
    Values.push_back(O.V);
    Replicated &= O.V.replicated();
    LocalTensor |= O.V.rows() || O.V.reduced();
  }
  if (const Value *Bad = firstUnknown(Values))
    return Value::unknownFor(Bad->Why);
  noteMeeting(Call);
  for (const Value &V : Values)
    if (V.is(Placement::PerProcess))
      return unknown("ACL0127", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' is calculated from a number that differs between "
                         "processes");
  if (Replicated) {
    if (Splits && drawsForParameter(Call))
      return unknown("ACL0177", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' draws random numbers of a parameter's shape while a "
                         "batch is split: where its first dimension is as large "
                         "as this process's part of the batch, the runtime takes "
                         "them for a value of each sample",
                     "Draw them before the loop over batches.");
    return allReplicated(Kind, Call);
  }
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
      return allReplicated(Kind, Call);
  }
  if (std::optional<Value> Loss = evalLoss(Call))
    return *Loss;
  if (drawsNumbers(Call.Name))
    for (const Operand &O : Call.Operands)
      if (O.V.rows() && !O.V.plainRows())
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' draws random numbers for samples that are not in "
                           "the first dimension",
                       "Bring the dimension of the samples to the front.");
  if (Kind && wantsSamplesFirst(*Kind, Call.Name))
    for (const Operand &O : Call.Operands)
      if (O.V.rows() && O.V.Dim != 0 &&
          !((*Kind == Op::Linear || *Kind == Op::MatMul) && O.V.Rank > 0 &&
            int(O.V.Dim) + 1 < O.V.Rank && &O == &Call.Operands[0] &&
            (Call.Operands.size() < 2 || Call.Operands[1].V.replicated())))
        return unknown("ACL0121", Call.Call,
                       "'" + spelled(Call.Call) +
                           "' is given a tensor whose samples are in dimension " +
                           std::to_string(O.V.Dim),
                       "Bring the dimension of the samples to the front.");
  if (!Kind)
    return unknown("ACL0122", Call.Call,
                   "'" + Call.Name +
                       "' is not known to keep the samples of a batch apart",
                   "Write it with operations that are known, or gather its "
                   "operands first.");
  return evalKnownOp(*Kind, Call);
}

/// Where the batch is not the first operand.
std::optional<Value> Interpreter::notFirst(const OpCall &Call) {
  if (!Call.Operands.empty() && Call.Operands[0].V.rows())
    return std::nullopt;
  return unknown("ACL0122", Call.Call,
                 "'" + spelled(Call.Call) +
                     "' uses the batch elsewhere than as its first operand, "
                     "or a number that was calculated over it");
}

/// Where other operands than the first belong to the batch.
std::optional<Value> Interpreter::splitAmongOthers(const OpCall &Call) {
  for (const Operand &O : llvm::ArrayRef(Call.Operands).drop_front())
    if (O.Tensors && !O.V.replicated())
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' combines the samples of the batch with each "
                         "other",
                     MixRemedy);
  return std::nullopt;
}

/// The first operand's rows, with another shape.
Value Interpreter::rowsLike(const OpCall &Call, unsigned MinRank, int Rank) {
  Value V = Call.Operands[0].V;
  for (const Operand &O : Call.Operands)
    addOrigins(V, O.V);
  V.MinRank = MinRank;
  V.Rank = Rank;
  V.Elements.clear();
  return V;
}

Value Interpreter::evalKnownOp(Op Kind, OpCall &Call) {
  const Value Self = Call.Operands.empty() ? Value() : Call.Operands[0].V;
  switch (Kind) {
  case Op::Same:
    return Self.rows() && Call.Name == "view_as_real"
               ? rowsLike(Call, Self.MinRank + 1)
               : Self;
  case Op::Pointwise:
    return pointwise(Call);
  case Op::Additive:
    return added(Call);
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
    if (std::optional<Value> Rows = lookedUp(Call))
      return *Rows;
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
    if (auto Bad = notFirst(Call))
      return *Bad;
    if (auto Bad = splitAmongOthers(Call))
      return *Bad;
    return rowsLike(Call, Self.MinRank,
                    Call.Name == "affine_grid" ? -1 : Self.Rank);
  case Op::Linear:
  case Op::Mm:
    if (auto Bad = notFirst(Call))
      return *Bad;
    if (auto Bad = splitAmongOthers(Call))
      return *Bad;
    return rowsLike(Call, std::max(Self.MinRank, 2u), Self.Rank);
  case Op::Conv1d:
  case Op::Conv2d:
  case Op::Conv3d: {
    if (auto Bad = notFirst(Call))
      return *Bad;
    if (auto Bad = splitAmongOthers(Call))
      return *Bad;
    const int Rank = 3 + static_cast<int>(Kind) - static_cast<int>(Op::Conv1d);
    return rowsLike(Call, Rank, Rank);
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
    if (auto Bad = notFirst(Call))
      return *Bad;
    const Operand *Classes = Call.find("num_classes");
    if (!Classes || isa<CXXDefaultArgExpr>(Classes->E) ||
        Classes->V.Constant == -1)
      return unknown("ACL0121", Call.Call,
                     "one_hot without a number of classes takes it from the "
                     "largest label of the batch",
                     "Give the number of classes.");
    return rowsLike(Call, Self.MinRank + 1, Self.Rank > 0 ? Self.Rank + 1 : -1);
  }
  case Op::MatMul: {
    if (Call.Operands.size() < 2)
      return unknown("ACL0122", Call.Call,
                     "'" + spelled(Call.Call) + "' is not understood");
    const Value &Other = Call.Operands[1].V;
    if (Self.rows() && Other.rows()) {
      if ((Self.MinRank >= 3 && Other.MinRank >= 3) || Call.Name == "bmm")
        return rowsLike(Call, 3);
      return unknown("ACL0121", Call.Call,
                     "'" + spelled(Call.Call) +
                         "' multiplies the samples of the batch with each "
                         "other",
                     MixRemedy);
    }
    if (Self.rows() && Other.replicated()) {
      if (Other.MayHoldBatch && !Other.FromModel)
        return pointwise(Call); // Names the operand.
      return rowsLike(Call, std::max(Self.MinRank, 1u),
                      Self.Dim ? Self.Rank : -1);
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
  case Op::ViewAs:
  case Op::Flatten:
  case Op::Transpose:
  case Op::TransposeMatrix:
  case Op::Permute:
  case Op::Squeeze:
  case Op::Unsqueeze:
  case Op::Expand:
    return reshaped(Kind, Call);
  case Op::Cat:
  case Op::Stack:
    return joinedTensors(Kind, Call);
  case Op::Index:
  case Op::IndexPut:
  case Op::Subscript:
    return indexed(Kind, Call);
  case Op::Einsum:
    return einsum(Call);
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
    V.MaybeFolded = Self.MaybeFolded;
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
  case Op::Whole:
    if (auto Bad = notFirst(Call))
      return *Bad;
    return gatheredOr(Call,
                      unknown("ACL0121", Call.Call,
                              "'" + spelled(Call.Call) +
                                  "' is calculated over all samples of the "
                                  "batch",
                              MixRemedy));
  }
  return unknown("ACL0122", Call.Call,
                 "'" + Call.Name + "' is not understood");
}
