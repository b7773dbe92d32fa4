//===- Losses.cpp - What a loss is a mean of ------------------------------===//

#include "Interpreter.h"
#include "Options.h"
#include "TorchTypes.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

namespace {
struct LossRow {
  llvm::StringLiteral Function;
  llvm::StringLiteral Module;
};
constexpr LossRow Losses[] = {
#define ACCEL_LOSS(Function, Module) {Function, Module},
#include "Losses.def"
};
/// at::Reduction::Reduction.
enum { ReduceNone = 0, ReduceMean = 1, ReduceSum = 2 };
} // namespace

/// An optional tensor that is left out: `{}`, nullopt, Tensor().
static bool isLeftOut(const Expr *E) {
  if (isa<CXXDefaultArgExpr>(E))
    return true;
  E = bare(E);
  if (const auto *List = dyn_cast<InitListExpr>(E))
    return List->getNumInits() == 0;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
    return Made->getNumArgs() == 0;
  return recordOf(E->getType()) && recordOf(E->getType())->getIdentifier() &&
         recordOf(E->getType())->getName() == "nullopt_t";
}

static std::optional<int> reductionNamed(llvm::StringRef Name) {
  if (Name == "kMean" || Name == "kBatchMean")
    return ReduceMean;
  if (Name == "kSum")
    return ReduceSum;
  if (Name == "kNone")
    return ReduceNone;
  return std::nullopt;
}

/// Losses over classes: a class for each position against scores for each
/// class. Their weights are one for each class.
static bool isOfClasses(llvm::StringRef Name) {
  static const std::set<llvm::StringRef> Names = {
      "nll_loss",      "nll_loss2d",         "nll_loss_nd",
      "cross_entropy", "cross_entropy_loss", "multi_margin_loss"};
  return Names.count(Name) != 0;
}

Value Interpreter::lossOf(const OpCall &Call, std::optional<int> Reduction) {
  // Operands as in any operation on all elements: both must be rows.
  OpCall Tensors;
  Tensors.Call = Call.Call;
  Tensors.Name = Call.Name;
  const bool OfClasses = isOfClasses(Call.Name);
  for (const Operand &O : Call.Operands) {
    if (!O.Tensors || isLeftOut(O.E))
      continue;
    if (O.Name != "pos_weight" && !(O.Name == "weight" && OfClasses))
      Tensors.Operands.push_back(O);
    else if (!O.V.replicated())
      return unknown("ACL0121", Call.Call,
                     "'" + Call.Name +
                         "' is given weights that are made from this process's "
                         "part of the batch");
  }
  // The ranks differ by one as they should.
  if (OfClasses)
    for (Operand &O : Tensors.Operands) {
      if (O.V.rows() && O.V.Dim != 0)
        return unknown("ACL0121", Call.Call,
                       "'" + Call.Name +
                           "' is given a tensor whose samples are not in the "
                           "first dimension");
      O.V.Rank = -1;
      O.V.MinRank = std::min(O.V.MinRank, 1u);
    }
  Value Elements = pointwise(Tensors);
  if (!Elements.rows())
    return Elements;
  if (!Reduction)
    return unknown("ACL0125", Call.Call,
                   "whether '" + Call.Name +
                       "' is a mean or a sum over the batch cannot be seen",
                   "Spell its reduction where it is called.");
  Value Result;
  addOrigins(Result, Elements);
  switch (*Reduction) {
  case ReduceNone:
    return Elements;
  case ReduceSum:
    Result.P = Placement::SumOfRows;
    return Result;
  default:
    Result.P = Placement::MeanOfRows;
    return Result;
  }
}

/// A call of a loss function; nothing when it is none.
std::optional<Value> Interpreter::evalLoss(const OpCall &Call) {
  const LossRow *Row = llvm::find_if(
      Losses, [&](const LossRow &R) { return Call.Name == R.Function; });
  if (Row == std::end(Losses))
    return std::nullopt;
  std::optional<int> Reduction = ReduceMean;
  for (const Operand &O : Call.Operands) {
    if (O.Name == "reduction") {
      const std::optional<int64_t> Number = constantOf(O.E, Context);
      Reduction = std::nullopt;
      if (Number && *Number >= ReduceNone && *Number <= ReduceSum)
        Reduction = static_cast<int>(*Number);
    } else if (O.Name == "options") {
      const std::optional<OptionSet> Options = optionsOf(O.E, Context);
      if (!Options) {
        if (!isa<CXXDefaultArgExpr>(O.E))
          Reduction = std::nullopt;
        continue;
      }
      if (const Expr *Given = Options->find("reduction"))
        Reduction = reductionNamed(enumeratorOf(Given));
    }
  }
  return lossOf(Call, Reduction);
}

/// A call of a loss module, through its holder or its forward.
std::optional<Value> Interpreter::evalLossModule(const CXXRecordDecl *Impl,
                                                 const OpCall &Call) {
  const LossRow *Row = llvm::find_if(
      Losses, [&](const LossRow &R) { return Impl->getName() == R.Module; });
  if (Row == std::end(Losses) || Row->Module.empty())
    return std::nullopt;
  OpCall Named = Call;
  Named.Name = Row->Function.str();
  noteMeeting(Named);
  std::vector<Value> Values;
  bool Replicated = true;
  for (const Operand &O : Named.Operands) {
    Values.push_back(O.V);
    Replicated &= O.V.replicated();
  }
  if (const Value *Bad = firstUnknown(Values))
    return Value::unknownFor(Bad->Why);
  Value Result;
  if (Replicated) {
    for (const Value &V : Values)
      addOrigins(Result, V);
    Result.Roots.clear();
    return Result;
  }
  // Which object it is is not followed: all of this class must agree.
  std::optional<int> Reduction;
  auto Made = Index.Modules.find(Row->Module.str());
  bool First = true;
  if (Made != Index.Modules.end())
    for (const CXXConstructExpr *E : Made->second) {
      const std::optional<OptionSet> Options = optionsOf(E, Context);
      std::optional<int> This;
      if (Options) {
        This = ReduceMean;
        if (const Expr *Given = Options->find("reduction"))
          This = reductionNamed(enumeratorOf(Given));
      }
      Reduction = First || Reduction == This ? This : std::nullopt;
      First = false;
      if (!Reduction)
        break;
    }
  return lossOf(Named, Reduction);
}
