//===- WholeTensors.cpp - Operations on what every process has in full ----===//

#include "Operations.h"

#include "TorchTypes.h"

#include "llvm/ADT/StringMap.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

/// The depth of the lists in `torch::tensor({{1, 2}, {3, 4}})`: the number of
/// dimensions. -1 where it is made of something else.
static int depthOfLists(const Expr *E) {
  if (const auto *List = dyn_cast_or_null<CXXStdInitializerListExpr>(E))
    return depthOfLists(List->getSubExpr());
  if (const auto *List = dyn_cast_or_null<InitListExpr>(E)) {
    const int Inner =
        List->getNumInits() ? depthOfLists(bare(List->getInit(0))) : -1;
    return Inner < 0 ? -1 : Inner + 1;
  }
  if (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(E)) {
    if (Made->getNumArgs() == 0)
      return -1;
    return depthOfLists(bare(Made->getArg(0)));
  }
  return E && E->getType()->isArithmeticType() ? 0 : -1;
}

static bool isMadeOfVector(const OpCall &Call) {
  if (Call.Name != "tensor" || Call.Operands.empty())
    return false;
  const Expr *E = bare(Call.Operands[0].E);
  while (const auto *Made = dyn_cast<CXXConstructExpr>(E)) {
    const CXXRecordDecl *D = Made->getConstructor()->getParent();
    if (isInStd(D) || Made->getNumArgs() == 0)
      break;
    E = bare(Made->getArg(0));
  }
  const CXXRecordDecl *D = recordOf(E->getType());
  return D && D->getIdentifier() && isInStd(D) && D->getName() == "vector";
}

/// What one device would have; what is to be known of it is whether its first
/// dimension may count samples.
Value Interpreter::allReplicated(std::optional<Op> Kind, const OpCall &Call) {
  if (Kind == Op::Factory)
    if (std::optional<Value> Local = localFactory(Call))
      return *Local;
  const llvm::StringRef Name = Call.Name;
  if (Splits && BatchDepth > 0 && inCallee() && !ModelEvaluates &&
      (Name.contains("dropout") || Name == "batch_norm" || Name == "rrelu") &&
      Call.Operands[0].V.MayHoldBatch)
    return unknown("ACL0130", Call.Call,
                   "'" + spelled(Call.Call) +
                       "' works on tensors that are not of the batch that this "
                       "step works on, while the runtime takes them for it",
                   "Switch the model to evaluation before, with eval(), or do "
                   "it after the loop over batches.");
  Value Result;
  for (const Operand &O : Call.Operands) {
    addOrigins(Result, O.V);
    if (O.Tensors)
      Result.MayHoldBatch |= O.V.MayHoldBatch;
  }
  // table.index_select(0, x): the rows are those of x.
  if (Call.Name == "index_select" && Call.Operands.size() == 3 &&
      Call.Operands[1].V.Constant == 0 && !Call.Operands[2].V.Roots.empty())
    Result.Roots = Call.Operands[2].V.Roots;
  Result.Rank = rankOfWhole(Kind, Call);
  Result.MinRank =
      Result.Rank >= 0 ? Result.Rank : minRankOfWhole(Kind, Call);
  if (!Kind) {
    Result.MayHoldBatch = holdsTensors(Call.Call->getType());
    // A matrix that says which position sees which.
    if ((Call.Name == "triu" || Call.Name == "tril") && Result.Rank == 2)
      Result.MayHoldBatch = false;
    return Result;
  }
  auto Dim = [&](llvm::StringRef Name) {
    const Operand *O = Call.find(Name);
    return O ? O->V.Constant : std::nullopt;
  };
  if (*Kind == Op::Squeeze && Splits && BatchDepth > 0)
    Out->WholeSqueezes.insert(plain(Call.Call));
  switch (*Kind) {
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
    if (*Kind == Op::Factory)
      Result.Shape = List;
    const bool Scalar = (List && List->getNumInits() == 0) ||
                        (isa<CXXConstructExpr>(Bare) &&
                         cast<CXXConstructExpr>(Bare)->getNumArgs() == 0);
    Result.MayHoldBatch = !Scalar && Lead.Constant != 1;
    // [samples, steps] as [samples * steps].
    Result.MaybeFolded = *Kind == Op::View && Lead.Constant == -1 &&
                         Shape->V.Elements.size() <= 1 &&
                         Call.Operands[0].V.Rank != 1;
    break;
  }
  case Op::Constant:
    // A table that is written out, or what the program has in a vector, is data
    // like any other; a row of numbers is a constant.
    Result.MayHoldBatch = Result.Rank >= 2 || isMadeOfVector(Call);
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
  case Op::Cat:
  case Op::Stack: {
    // Samples put behind each other become a batch, also when each of them was
    // one row by itself.
    const Dims D = dimsOf(Call);
    if (D.State != Dims::Known || llvm::is_contained(D.List, 0))
      Result.MayHoldBatch = true;
    break;
  }
  case Op::Item:
  case Op::Size:
  case Op::Sizes:
  case Op::Numel:
  case Op::Host:
    Result.MayHoldBatch = false;
    Result.FromModel = false;
    break;
  case Op::Same:
    Result.Shape = Call.Operands[0].V.Shape;
    Result.Variable = Call.Operands[0].V.Variable;
    Result.MaybeFolded = Call.Operands[0].V.MaybeFolded;
    break;
  case Op::Pointwise:
  case Op::Additive:
  case Op::Multiply:
  case Op::Divide: {
    // A tensor and numbers.
    unsigned Tensors = 0;
    for (const Operand &O : Call.Operands)
      if (O.Tensors && ++Tensors)
        Result.Shape = O.V.Shape;
    if (Tensors != 1)
      Result.Shape = nullptr;
    break;
  }
  default:
    break;
  }
  return Result;
}

/// The number of dimensions of the result; -1 where it is not known.
int Interpreter::rankOfWhole(std::optional<Op> Kind, const OpCall &Call) {
  if (!holdsTensors(Call.Call->getType()))
    return -1;
  const int Self = Call.Operands.empty() ? -1 : Call.Operands[0].V.Rank;
  auto Deeper = [&](int By) { return Self < 0 ? -1 : Self + By; };
  if (!Kind) {
    static const llvm::StringMap<int> Made = {
        {"arange", 1},   {"linspace", 1}, {"logspace", 1},
        {"randperm", 1}, {"eye", 2}};
    if (auto It = Made.find(Call.Name); It != Made.end())
      return It->second;
    return Call.Name == "triu" || Call.Name == "tril" ? Self : -1;
  }
  auto Listed = [&]() -> int {
    const Operand *Shape = shapeOperand(Call);
    return Shape && !Shape->V.Elements.empty() ? Shape->V.Elements.size() : -1;
  };
  switch (*Kind) {
  case Op::Factory:
  case Op::View:
  case Op::Expand:
    return Listed();
  case Op::Same:
    return Call.Name == "view_as_real" ? Deeper(1) : Self;
  case Op::PerSample:
    return Call.Name == "affine_grid" ? -1 : Self;
  case Op::Like:
  case Op::Along:
  case Op::Linear:
  case Op::Transpose:
  case Op::TransposeMatrix:
  case Op::Permute:
    return Self;
  case Op::Pointwise:
  case Op::Additive:
  case Op::Multiply:
  case Op::Divide: {
    int Rank = -1;
    for (const Operand &O : Call.Operands)
      if (O.Tensors) {
        if (O.V.Rank < 0)
          return -1;
        Rank = std::max(Rank, O.V.Rank);
      }
    return Rank;
  }
  case Op::Mean:
  case Op::Sum:
  case Op::Reduce: {
    const Dims D = dimsOf(Call);
    const Operand *Keep = Call.find("keepdim");
    if (Call.Operands.size() > 1 && Call.Operands[1].Tensors)
      return -1;
    if (Call.Name == "select" || Call.Name == "unbind")
      return Deeper(-1);
    if (D.State != Dims::Known || (Keep && !Keep->V.Constant))
      return -1;
    return Keep && *Keep->V.Constant ? Self : Deeper(-int(D.List.size()));
  }
  case Op::Unsqueeze:
  case Op::OneHot:
    return Deeper(1);
  case Op::Embedding:
    return -1;
  case Op::Stack:
    return Deeper(1);
  case Op::Cat:
    return Self;
  case Op::ViewAs:
    return Call.Operands.back().V.Rank;
  case Op::Subscript:
    return Call.Operands.size() == 2 && !Call.Operands[1].Tensors ? Deeper(-1)
                                                                  : -1;
  case Op::Conv1d:
    return 3;
  case Op::Conv2d:
    return 4;
  case Op::Conv3d:
    return 5;
  case Op::Constant:
    return Call.Name != "tensor" || Call.Operands.empty() ? -1
           : isMadeOfVector(Call)                         ? 1
                                  : depthOfLists(bare(Call.Operands[0].E));
  default:
    return -1;
  }
}

/// A lower bound of it.
unsigned Interpreter::minRankOfWhole(std::optional<Op> Kind,
                                     const OpCall &Call) {
  if (!Kind || Call.Operands.empty() || !holdsTensors(Call.Call->getType()))
    return 0;
  const unsigned Self = Call.Operands[0].V.MinRank;
  switch (*Kind) {
  case Op::Along:
    // These take no tensor without a dimension.
    return Call.Name == "slice" || Call.Name == "narrow" ||
                   Call.Name == "chunk" || Call.Name == "split"
               ? std::max(Self, 1u)
               : Self;
  case Op::Same:
  case Op::Like:
    return Self;
  case Op::Pointwise:
  case Op::Additive:
  case Op::Multiply:
  case Op::Divide: {
    unsigned Most = 0;
    for (const Operand &O : Call.Operands)
      if (O.Tensors)
        Most = std::max(Most, O.V.MinRank);
    return Most;
  }
  case Op::Unsqueeze:
  case Op::Stack:
    return Self + 1;
  case Op::Cat:
    return std::max(Self, 1u);
  default:
    return 0;
  }
}
