//===- TrainingSteps.cpp - What a pass of a training loop may do ----------===//
//
// Gradients are averaged in each backward, and an average of what is equal
// already changes nothing. So any number of backwards, steps, models and
// optimizers, in any order and under conditions that all processes decide
// alike, trains as on one device, as long as each loss is a mean or a sum over
// the batch, or the same on all processes.
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// Whether `F` is a method of an object that has the member `V`.
static bool isMemberOf(const ValueDecl *V, const FunctionDecl *F) {
  const auto *Member = dyn_cast<FieldDecl>(V);
  const auto *Method = dyn_cast<CXXMethodDecl>(F);
  if (!Member || !Method)
    return false;
  const auto *Class = dyn_cast<CXXRecordDecl>(Member->getParent());
  return Class && (Method->getParent() == Class ||
                   Method->getParent()->isDerivedFrom(Class));
}

/// The models that the loop calls, in order, without those that have no
/// parameters or no name where its body begins.
std::vector<const ValueDecl *> Interpreter::modelsOf(const Stmt *S,
                                                     const Effects &E) {
  static const std::set<std::string> WithParameters = {
      "LinearImpl", "Conv1dImpl", "Conv2dImpl", "Conv3dImpl",
      "ConvTranspose1dImpl", "ConvTranspose2dImpl", "ConvTranspose3dImpl",
      "EmbeddingImpl", "BatchNorm1dImpl", "BatchNorm2dImpl",
      "BatchNorm3dImpl", "LayerNormImpl", "GroupNormImpl", "SequentialImpl",
      "LSTMImpl", "GRUImpl", "RNNImpl", "PReLUImpl", "BilinearImpl"};
  std::vector<const ValueDecl *> Result;
  for (const ValueDecl *V : E.Models) {
    if (const auto *Method = dyn_cast<CXXMethodDecl>(V)) { // *this
      if (Method == Stack.back())
        Result.push_back(V);
      continue;
    }
    const CXXRecordDecl *Impl = moduleOf(V->getType());
    if (isTorch(Impl) && !WithParameters.count(Impl->getNameAsString()))
      continue;
    const auto *Variable = dyn_cast<VarDecl>(V);
    const bool Named =
        Variable ? Variable->hasGlobalStorage() ||
                       (V->getParentFunctionOrMethod() == Stack.back() &&
                        Context.getSourceManager().isBeforeInTranslationUnit(
                            V->getLocation(), S->getBeginLoc()))
                 : isMemberOf(V, Stack.back());
    if (Named && V->getIdentifier())
      Result.push_back(V);
  }
  return Result;
}

/// An argument that says no more than leaving it out does.
static bool saysNothing(const Expr *E) {
  if (isa<CXXDefaultArgExpr>(E))
    return true;
  E = bare(E);
  if (const auto *List = dyn_cast<InitListExpr>(E))
    return List->getNumInits() == 0;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
    return Made->getNumArgs() == 0;
  const CXXRecordDecl *D = recordOf(E->getType());
  return D && D->getIdentifier() && D->getName() == "nullopt_t";
}

const Expr *accel::migrate::retainGraphOf(const CXXMemberCallExpr *Backward) {
  for (unsigned I = 0; I < Backward->getNumArgs(); ++I)
    if (Backward->getMethodDecl()->getParamDecl(I)->getName() == "retain_graph" &&
        !saysNothing(Backward->getArg(I)))
      return Backward->getArg(I);
  return nullptr;
}

void Interpreter::checkBackward(const Effects::Backward &B, Effects &E) {
  auto Refuse = [&](llvm::StringRef Id, SourceLocation Loc,
                    std::string Message, std::string Remedy) {
    E.refuse(Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
  };
  const SourceLocation Loc = B.Call->getExprLoc();
  if (B.Loss.Gathered)
    Refuse(B.Loss.Gathered->Id, B.Loss.Gathered->Loc, B.Loss.Gathered->Message,
           B.Loss.Gathered->Remedy);
  for (unsigned I = 0; I < B.Call->getNumArgs(); ++I) {
    const Expr *Arg = B.Call->getArg(I);
    const llvm::StringRef Name =
        B.Call->getMethodDecl()->getParamDecl(I)->getName();
    if (saysNothing(Arg) || Name == "retain_graph" ||
        (Name == "create_graph" && constantOf(Arg, Context) == 0))
      continue;
    Refuse("ACL0109", Loc,
           Name == "create_graph"
               ? "backward() is to make the gradients differentiable, and "
                 "gradients that have been averaged over the processes have no "
                 "graph"
               : "backward() is called with the argument '" + Name.str() + "'",
           "Call it on a loss that is a single number, with retain_graph at "
           "most, or migrate this step by hand.");
    break;
  }
  if (const Value *Bad = firstUnknown(B.Loss))
    Refuse(Bad->Why->Id, Bad->Why->Loc, Bad->Why->Message, Bad->Why->Remedy);
  else if (!B.Loss.reduced() && !B.Loss.replicated())
    Refuse("ACL0125", Loc,
           B.Loss.rows() ? "the loss has a value for each sample"
                         : "the loss differs between processes",
           "Reduce it with mean() or sum().");
}

void Interpreter::checkTrainingLoop(const Stmt *S, const BatchLoop &Facts,
                                    const CompoundStmt *Body, Effects &E) {
  E.Loops.push_back(
      {&Facts, Body, modelsOf(S, E), E.Backwards, {}, nullptr, false});
  bool Shares = false;
  for (const Effects::Backward &B : E.Backwards) {
    checkBackward(B, E);
    Shares |= !B.Loss.replicated();
  }
  if (!E.Backwards.empty() && !Shares)
    E.refuse(Text.finding(
        "ACL0125", E.Backwards.front().Call->getExprLoc(),
        "the loss is the same on all processes: it does not depend on the part "
        "of the batch",
        "Calculate it from the batch of this loop."));
}

/// A loop whose batch cannot be split is exact as it stands: all processes draw
/// the same numbers and calculate the same. `E` has the reasons as refusals,
/// which are given where the program has nothing else to share.
void Interpreter::keepWhole(const Stmt *S, const BatchLoop &Facts,
                            const CompoundStmt *Body, Effects &E) {
  Effects::Loop Loop{&Facts, Body, modelsOf(S, E), E.Backwards,
                     {},     nullptr, false, true};
  Loop.WhyWhole = std::move(E.Refusals);
  E.Refusals.clear();
  for (const Effects::Backward &B : E.Backwards)
    checkBackward(B, E);
  E.Loops.push_back(std::move(Loop));
}

/// `optimizer.step(closure)`: the closure runs as often as all processes decide
/// alike, since its gradients are averaged and the optimizer sees the loss of
/// the whole batch.
void Interpreter::stepWithClosure(const CallExpr *E) {
  for (const Expr *Arg : E->arguments()) {
    if (isa<CXXDefaultArgExpr>(Arg))
      continue;
    const FunctionDecl *Closure = closureOf(Arg);
    if (!Closure || !Closure->hasBody()) {
      refuse("ACL0115", E->getExprLoc(),
             "the optimizer is given a closure that is not to be seen",
             "Give it a lambda that stands in the same function.");
      continue;
    }
    Value Loss;
    loopUntilStable([&] { Loss = evalOwn(Closure, E, {}, {}, nullptr); });
    if (const Value *Bad = firstUnknown(Loss))
      refuse(Bad->Why);
    else if (!Loss.replicated() && !Loss.is(Placement::MeanOfRows))
      refuse("ACL0115", E->getExprLoc(),
             "the optimizer decides by a loss that is no mean over the batch",
             "Return the mean over the samples from the closure.");
  }
}

/// `x.grad()`. Gradients of parameters are averaged when backward returns.
Value Interpreter::gradientOf(const Value &Self, const Expr *E) {
  if (const Value *Bad = firstUnknown(Self))
    return Value::unknownFor(Bad->Why);
  Value Result;
  Result.FromModel = true;
  if (Splits && !(Self.replicated() && Self.IsParameter))
    return unknown("ACL0132", E,
                   "'" + spelled(E) +
                       "' is the gradient of a tensor that is not known to be a "
                       "parameter: each process has one of its own",
                   "Gradients of parameters that an optimizer trains are those "
                   "of the whole batch behind accelerator.backward(loss); "
                   "others have to be averaged by hand.");
  return Result;
}
