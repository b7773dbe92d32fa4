//===- BatchLoops.cpp - Loops over batches --------------------------------===//
//
// A loop is interpreted as it is, with its batch split from the beginning (a
// loader) or from the place where it is complete (no loader). Evaluation loops
// are then tried with their variables gathered: the numbers are then those of
// one device to the last bit.
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

static const Stmt *bodyOf(const Stmt *Loop) {
  if (const auto *S = dyn_cast<ForStmt>(Loop))
    return S->getBody();
  if (const auto *S = dyn_cast<WhileStmt>(Loop))
    return S->getBody();
  if (const auto *S = dyn_cast<DoStmt>(Loop))
    return S->getBody();
  return cast<CXXForRangeStmt>(Loop)->getBody();
}

/// Whether a loader's data set stacks its samples along dimension 0: the last
/// of its transforms is Stack<>.
static bool isStacked(const CXXRecordDecl *DataSet) {
  const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(DataSet);
  if (!D || !D->getIdentifier() || !isTorch(D))
    return false;
  const TemplateArgumentList &Args = D->getTemplateArgs();
  if (D->getName() == "SharedBatchDataset" && Args.size() > 0)
    return isStacked(recordOf(Args[0].getAsType()));
  if (D->getName() != "MapDataset" || Args.size() < 2)
    return false;
  const CXXRecordDecl *Transform = recordOf(Args[1].getAsType());
  return Transform && Transform->getIdentifier() && isTorch(Transform) &&
         Transform->getName() == "Stack";
}

/// The data set's class in the type of a loader.
static const CXXRecordDecl *dataSetOf(QualType Loader) {
  const auto *D =
      dyn_cast_or_null<ClassTemplateSpecializationDecl>(loaderOf(Loader));
  return D && D->getTemplateArgs().size() > 0
             ? recordOf(D->getTemplateArgs()[0].getAsType())
             : nullptr;
}

/// torch::data::Example<Tensor, …>.
static bool isExample(QualType T) {
  const auto *D =
      dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(T));
  return D && D->getName() == "Example" && isTorch(D) &&
         isTensor(D->getTemplateArgs()[0].getAsType());
}

void Interpreter::iterateBatchLoop(const Stmt *S, const BatchLoop &Facts) {
  if (Facts.HasLoader) {
    const auto *Range = cast<CXXForRangeStmt>(S);
    loopUntilStable([&] {
      const VarDecl *Batch = Range->getLoopVariable();
      Value V = Value::rowsOf(1);
      if (!isExample(Batch->getType()) ||
          !isStacked(dataSetOf(Range->getRangeInit()->getType())))
        V = unknown("ACL0140", Range->getRangeInit(),
                    "the batches of this loader are not stacked along "
                    "dimension 0 by the transform Stack<>, so that it is not "
                    "known where their samples are",
                    "Add .map(torch::data::transforms::Stack<>()) as the last "
                    "transform of the data set.");
      declare(Batch, V);
      exec(Range->getBody());
    });
    return;
  }
  const unsigned Outside = Conditions;
  Conditions = 0;
  if (const auto *Range = dyn_cast<CXXForRangeStmt>(S)) {
    const Value Over = eval(Range->getRangeInit());
    loopUntilStable([&] {
      declare(Range->getLoopVariable(), Over.element(~0u));
      exec(Range->getBody());
    });
  } else if (const auto *For = dyn_cast<ForStmt>(S)) {
    exec(For->getInit());
    loopUntilStable([&] {
      exec(For->getConditionVariableDeclStmt());
      condition(For->getCond(), For);
      exec(For->getBody());
      exec(For->getInc());
    });
  } else if (const auto *While = dyn_cast<WhileStmt>(S)) {
    loopUntilStable([&] {
      exec(While->getConditionVariableDeclStmt());
      condition(While->getCond(), While);
      exec(While->getBody());
    });
  } else if (const auto *Do = dyn_cast<DoStmt>(S)) {
    loopUntilStable([&] {
      exec(Do->getBody());
      condition(Do->getCond(), Do);
    });
  }
  Conditions = Outside;
}

void Interpreter::runBatchLoop(const Stmt *S, const BatchLoop &Facts,
                               const LoopPlan &P) {
  const LoopPlan *OuterPlan = Plan;
  const CompoundStmt *OuterBody = BatchBody;
  const Stmt *OuterTop = Top;
  const unsigned OuterConditions = Conditions;
  const bool OuterSplits = Splits;
  Splits = Facts.HasLoader || P.Kind == LoopPlan::Shard;
  Plan = &P;
  BatchBody = cast<CompoundStmt>(bodyOf(S));
  Conditions = 0;
  ++BatchDepth;
  iterateBatchLoop(S, Facts);
  --BatchDepth;
  Plan = OuterPlan;
  BatchBody = OuterBody;
  Top = OuterTop;
  Conditions = OuterConditions;
  Splits = OuterSplits;
  // What is left in variables belongs to the last batch, which is not being
  // worked on any more.
  for (auto &[Variable, Slot] : Env)
    if (!Slot.V.replicated() && !Slot.V.is(Placement::PerProcess) &&
        Slot.Depth <= BatchDepth)
      Slot.V = Value::unknownFor(
          reason("ACL0128", Variable->getLocation(),
                 "'" + Variable->getNameAsString() +
                     "' still holds this process's part of the last batch when "
                     "the loop has ended",
                 "Read the number with item() inside of the loop."));
}

Effects Interpreter::attempt(const Stmt *S, const BatchLoop &Facts,
                             const LoopPlan &P) {
  Effects Result;
  Effects *Recording = Out;
  Out = &Result;
  runBatchLoop(S, Facts, P);
  Out = Recording;
  return Result;
}

void Interpreter::execBatchLoop(const Stmt *S, const BatchLoop &Facts) {
  const auto *Body = dyn_cast<CompoundStmt>(bodyOf(S));
  if (!Body)
    return refuse("ACL0100", S->getBeginLoc(),
                  "the body of the loop over batches is not a block",
                  "Put braces around it.");
  Out->Visited.insert(S);
  const Environment Before = Env;
  Effects Result = attempt(S, Facts, {});
  Environment After = std::move(Env);
  Env = Before;

  if (Facts.Training && !Facts.HasLoader) {
    Effects Whole = std::move(Result);
    Result = Effects();
    const std::optional<LoopPlan> Shard = planShard(Body, Whole);
    if (!Shard) {
      Out->append(Whole);
      Env = Before;
      return;
    }
    Result = attempt(S, Facts, *Shard);
    After = std::move(Env);
    checkTrainingLoop(S, Facts, Body, Result);
    Result.Loops.back().Variables = Shard->Variables;
    Result.Loops.back().At = Shard->At;
  } else if (Facts.Training) {
    checkTrainingLoop(S, Facts, Body, Result);
  } else {
    if (std::optional<LoopPlan> Gather = planGather(Body, Result)) {
      Effects Gathered = attempt(S, Facts, *Gather);
      if (Gathered.Refusals.empty() && Gathered.Reads.empty()) {
        Effects::Loop Loop{&Facts, Body, nullptr, {}, Gather->Variables,
                           Gather->At, true};
        Gathered.Loops.push_back(Loop);
        Result = std::move(Gathered);
        After = std::move(Env);
      }
    }
  }
  Env = std::move(After);
  Out->append(Result);
}

const VarDecl *Interpreter::chooseModel(const Stmt *S, Effects &E) {
  // Modules without parameters may be called in the loop too.
  std::vector<const VarDecl *> Trained;
  for (const VarDecl *V : E.Models) {
    const CXXRecordDecl *Impl = moduleOf(V->getType());
    static const std::set<std::string> WithParameters = {
        "LinearImpl", "Conv1dImpl", "Conv2dImpl", "Conv3dImpl",
        "ConvTranspose1dImpl", "ConvTranspose2dImpl", "ConvTranspose3dImpl",
        "EmbeddingImpl", "BatchNorm1dImpl", "BatchNorm2dImpl",
        "BatchNorm3dImpl", "LayerNormImpl", "GroupNormImpl", "SequentialImpl",
        "LSTMImpl", "GRUImpl", "RNNImpl", "PReLUImpl", "BilinearImpl"};
    if (!isTorch(Impl) || WithParameters.count(Impl->getNameAsString()))
      Trained.push_back(V);
  }
  if (Trained.size() == 1)
    return Trained.front();
  auto Refuse = [&](llvm::StringRef Id, std::string Message,
                    std::string Remedy) {
    E.refuse(Text.finding(Id, S->getBeginLoc(), std::move(Message),
                          std::move(Remedy)));
    return nullptr;
  };
  if (Trained.empty())
    return Refuse("ACL0117",
                  "no model is seen that this loop trains (a torch::nn::Module "
                  "in a variable)",
                  "Put the parameters into a torch::nn::Module and call it in "
                  "the loop.");
  return Refuse("ACL0112",
                "the loop trains several models ('" +
                    Trained[0]->getNameAsString() + "' and '" +
                    Trained[1]->getNameAsString() + "')",
                "Put them into one torch::nn::Module, or migrate this loop by "
                "hand: prepare all of them, and guard the step with "
                "accelerator.accumulate(a, b).");
}

void Interpreter::checkTrainingLoop(const Stmt *S, const BatchLoop &Facts,
                                    const CompoundStmt *Body, Effects &E) {
  auto Refuse = [&](llvm::StringRef Id, SourceLocation Loc,
                    std::string Message, std::string Remedy) {
    E.refuse(Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
  };
  E.Loops.push_back({&Facts, Body, chooseModel(S, E), E.Backwards, {}, nullptr,
                     false});
  if (E.Backwards.size() > 1)
    Refuse("ACL0110", E.Backwards[1].Call->getExprLoc(),
           "there is a second backward() in the same step",
           "Add the losses and call backward() once, or migrate this loop by "
           "hand.");
  for (const Effects::Backward &B : E.Backwards) {
    const SourceLocation Loc = B.Call->getExprLoc();
    for (const Expr *Arg : B.Call->arguments())
      if (!isa<CXXDefaultArgExpr>(Arg)) {
        Refuse("ACL0109", Loc, "backward() is called with arguments",
               "Call it without, or migrate this step by hand.");
        break;
      }
    if (!B.Top)
      Refuse("ACL0114", Loc, "backward() is called only under a condition",
             "Call it in every step; leave the step with `continue` before it "
             "where it is not wanted.");
    if (const Value *Bad = firstUnknown(B.Loss))
      Refuse(Bad->Why->Id, Bad->Why->Loc, Bad->Why->Message, Bad->Why->Remedy);
    else if (!B.Loss.reduced())
      Refuse("ACL0125", Loc,
             B.Loss.rows()
                 ? "the loss has a value for each sample"
                 : "the loss is the same on all processes: it does not depend "
                   "on the part of the batch",
             "Reduce it with mean() or sum().");
  }
  std::set<const VarDecl *> Optimizers;
  for (const CallExpr *Step : E.Steps) {
    const auto *Call = cast<CXXMemberCallExpr>(Step);
    Optimizers.insert(variableOf(Call->getImplicitObjectArgument()));
    for (const Expr *Arg : Call->arguments())
      if (!isa<CXXDefaultArgExpr>(Arg))
        Refuse("ACL0115", Step->getExprLoc(),
               "the optimizer is given a closure that it calls by itself",
               "Migrate this step by hand: the closure's loss has to be the "
               "one of the whole batch.");
  }
  if (E.Steps.empty())
    Refuse("ACL0117", S->getBeginLoc(),
           "no optimizer steps in this loop, although it has a backward()",
           "Call optimizer.step() in the loop.");
  if (Optimizers.size() > 1 || E.Steps.size() > 1)
    Refuse("ACL0111", E.Steps[1]->getExprLoc(),
           "several optimizer steps belong to one backward()",
           "Give all parameters to one optimizer, or migrate this loop by "
           "hand.");
}
