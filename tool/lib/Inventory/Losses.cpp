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
  bool WeightDivides;
};
constexpr LossRow Losses[] = {
#define ACCEL_LOSS(Function, Module, WeightDivides)                            \
  {Function, Module, WeightDivides},
#include "Losses.def"
};
/// at::Reduction::Reduction.
enum { ReduceNone = 0, ReduceMean = 1, ReduceSum = 2 };
} // namespace

static constexpr char DenominatorRemedy[] =
    "Count this process's denominator in the loop and call "
    "accelerator.backward(loss, weight) by hand.";

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

/// Whether an option (or an argument) makes the mean's denominator something
/// else than the number of samples.
static bool changesDenominator(llvm::StringRef Name, const Expr *Given,
                               const ASTContext &Context) {
  if (Name == "weight")
    return !isLeftOut(Given);
  if (Name == "ignore_index")
    return constantOf(Given, Context) != -100;
  return false;
}

Value Interpreter::lossOf(const OpCall &Call, std::optional<int> Reduction,
                          const Reason *Denominator) {
  // Operands as in any operation on all elements: both must be rows.
  OpCall Tensors;
  Tensors.Call = Call.Call;
  Tensors.Name = Call.Name;
  for (const Operand &O : Call.Operands)
    if (O.Tensors && !isLeftOut(O.E) && O.Name != "pos_weight" &&
        !(O.Name == "weight" && Denominator))
      Tensors.Operands.push_back(O);
  // A class for each position against scores for each class: the ranks differ
  // by one as they should.
  static const std::set<std::string> OfClasses = {
      "nll_loss",      "nll_loss2d",        "nll_loss_nd", "cross_entropy",
      "cross_entropy_loss", "multi_margin_loss"};
  if (OfClasses.count(Call.Name))
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
    if (Denominator)
      return Value::unknownFor(Denominator);
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
  const Reason *Denominator = nullptr;
  auto Divides = [&](llvm::StringRef Name, const Expr *Given) {
    if (Row->WeightDivides && changesDenominator(Name, Given, Context))
      Denominator =
          reason("ACL0124", Given->getExprLoc(),
                 "with '" + Name.str() + "' the mean of " + Call.Name +
                     " is not divided by the number of samples",
                 DenominatorRemedy);
  };
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
      for (const auto &[Name, Given] : Options->Given)
        Divides(Name, Given);
    } else {
      Divides(O.Name, O.E);
    }
  }
  return lossOf(Call, Reduction, Denominator);
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
  const Reason *Denominator = nullptr;
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
        for (const auto &[Name, Given] : Options->Given)
          if (Row->WeightDivides && changesDenominator(Name, Given, Context))
            Denominator =
                reason("ACL0124", Given->getExprLoc(),
                       "with '" + Name + "' the mean of " + Named.Name +
                           " is not divided by the number of samples",
                       DenominatorRemedy);
      }
      Reduction = First || Reduction == This ? This : std::nullopt;
      First = false;
      if (!Reduction)
        break;
    }
  return lossOf(Named, Reduction, Denominator);
}
