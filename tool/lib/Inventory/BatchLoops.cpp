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

void Interpreter::iterateBatchLoop(const Stmt *S, const BatchLoop &Facts) {
  if (Facts.HasLoader) {
    const auto *Range = dyn_cast<CXXForRangeStmt>(S);
    // The batch, or the iterator that stands on it.
    const auto *Batch =
        Range ? Range->getLoopVariable()
              : cast<VarDecl>(
                    cast<DeclStmt>(cast<ForStmt>(S)->getInit())->getSingleDecl());
    Value V = Value::rowsOf(1);
    if (Facts.Unsplit) {
      V = Value();
      V.MayHoldBatch = true;
    }
    loopUntilStable([&] {
      declare(Batch, V);
      exec(bodyOf(S));
    }, /*KeepsLast=*/true);
    return;
  }
  if (const auto *Range = dyn_cast<CXXForRangeStmt>(S)) {
    const Value Over = eval(Range->getRangeInit());
    loopUntilStable([&] {
      declare(Range->getLoopVariable(), Over.element(~0u));
      exec(Range->getBody());
    }, /*KeepsLast=*/true);
  } else if (const auto *For = dyn_cast<ForStmt>(S)) {
    exec(For->getInit());
    loopUntilStable([&] {
      exec(For->getConditionVariableDeclStmt());
      condition(For->getCond(), For);
      exec(For->getBody());
      exec(For->getInc());
    }, /*KeepsLast=*/true);
  } else if (const auto *While = dyn_cast<WhileStmt>(S)) {
    loopUntilStable([&] {
      exec(While->getConditionVariableDeclStmt());
      condition(While->getCond(), While);
      exec(While->getBody());
    }, /*KeepsLast=*/true);
  } else if (const auto *Do = dyn_cast<DoStmt>(S)) {
    loopUntilStable([&] {
      exec(Do->getBody());
      condition(Do->getCond(), Do);
    }, /*KeepsLast=*/true);
  }
}

void Interpreter::runBatchLoop(const Stmt *S, const BatchLoop &Facts,
                               const LoopPlan &P) {
  const LoopPlan *OuterPlan = Plan;
  const CompoundStmt *OuterBody = BatchBody;
  const Stmt *OuterTop = Top;
  const bool OuterSplits = Splits;
  std::map<const ValueDecl *, Value> OuterParts;
  std::swap(OuterParts, Parts);
  const bool OuterInParts = InParts;
  Splits = Facts.sharesBatches() || P.Kind == LoopPlan::Shard;
  InParts = P.InParts;
  Plan = &P;
  BatchBody = cast<CompoundStmt>(bodyOf(S));
  const SourceLocation OuterBackward = LastBackward;
  LastBackward = SourceLocation();
  for (const BackwardCall &B : Index.Backwards)
    if (B.Step == S && !B.InLambda &&
        (LastBackward.isInvalid() ||
         Context.getSourceManager().isBeforeInTranslationUnit(
             LastBackward, B.Call->getEndLoc())))
      LastBackward = B.Call->getEndLoc();
  forgetLastBatch();
  startStates();
  ++BatchDepth;
  iterateBatchLoop(S, Facts);
  --BatchDepth;
  Plan = OuterPlan;
  BatchBody = OuterBody;
  Top = OuterTop;
  Splits = OuterSplits;
  InParts = OuterInParts;
  LastBackward = OuterBackward;
  std::swap(OuterParts, Parts);
  // What is left in variables belongs to the last batch, which is not being
  // worked on any more.
  for (auto &[Variable, Slot] : Env) {
    if (Slot.V.replicated() || Slot.V.is(Placement::PerProcess) ||
        Slot.Depth > BatchDepth)
      continue;
    Slot.V.LastBatch = BatchDepth == 0 && Slot.V.Elements.empty() &&
                       (Slot.V.plainRows() || Slot.V.reduced());
    if (!Slot.V.LastBatch)
      Slot.V = Value::unknownFor(leftOver(Variable));
  }
}

const Reason *Interpreter::leftOver(const ValueDecl *Variable) {
  return reason("ACL0128", Variable->getLocation(),
                "'" + Variable->getNameAsString() +
                    "' still holds this process's part of the last batch when "
                    "the loop has ended",
                "Read the number with item() inside of the loop.");
}

/// Another batch is about to be worked on: nothing may be read of the last one
/// of an earlier loop any more.
void Interpreter::forgetLastBatch() {
  for (auto &[Variable, Slot] : Env)
    if (Slot.V.LastBatch)
      Slot.V = Value::unknownFor(leftOver(Variable));
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

/// As the plan says, with the checks of a training step; where whole tensors
/// then meet parts, once more with the shapes that they are made with written
/// for a part, and with states that were made before the loop split; where that
/// does not do, once more with models called on tensors that are no part of the
/// batch.
Effects Interpreter::repaired(const Stmt *S, const BatchLoop &Facts,
                              const CompoundStmt *Body, LoopPlan &P) {
  const Environment Before = Env;
  std::optional<Effects> Best;
  Environment After;
  for (const bool Replicates : {false, true}) {
    P.Replicates = Replicates;
    P.LocalShapes.clear();
    P.States.clear();
    for (int Round = 0; Round < 5; ++Round) {
      Env = Before;
      Effects Tried = attempt(S, Facts, P);
      bool More = false;
      if (Facts.Training) {
        checkTrainingLoop(S, Facts, Body, Tried);
        Tried.Loops.back().States = P.States;
        for (const StateVariable &State : Tried.WholeStates)
          if (!llvm::is_contained(P.States, State)) {
            P.States.push_back(State);
            More = true;
          }
      }
      for (const auto &Shape : Tried.WholeShapes)
        if (!llvm::is_contained(P.LocalShapes, Shape)) {
          P.LocalShapes.push_back(Shape);
          More = true;
        }
      const bool Clean = Tried.Refusals.empty();
      // What is refused in the end is what is wrong with the loop as it is.
      if (!Best || (Replicates ? Clean
                               : Tried.Refusals.size() < Best->Refusals.size())) {
        Best = std::move(Tried);
        After = std::move(Env);
      }
      if (Clean || !More)
        break;
    }
    if (Best->Refusals.empty())
      break;
  }
  Env = std::move(After);
  return std::move(*Best);
}

void Interpreter::execBatchLoop(const Stmt *S, const BatchLoop &Facts) {
  const auto *Body = dyn_cast<CompoundStmt>(bodyOf(S));
  if (!Body)
    return refuse("ACL0100", S->getBeginLoc(),
                  "the body of the loop over batches is not a block",
                  "Put braces around it.");
  Out->Visited.insert(S);
  // The runtime would take what is drawn for its batches for rows of the others.
  if (Facts.Unsplit && Splits)
    return refuse("ACL0140", S->getBeginLoc(),
                  "this loader, whose batches every process reads in full, is "
                  "gone over while a part of another batch is being worked on",
                  "Go over it behind the loop over the other batches, or make "
                  "its data set stack its samples, with the transform Stack<>.");
  const Environment Before = Env;
  LoopPlan AsIs;
  const bool Whole = Facts.Training && !Facts.sharesBatches();
  Effects Result =
      Whole ? attempt(S, Facts, AsIs) : repaired(S, Facts, Body, AsIs);
  Environment After = std::move(Env);
  Env = Before;

  if (Whole) {
    const bool Understood = Result.Refusals.empty();
    Effects AsWhole = Result;
    Environment AfterWhole = After;
    Result = splitWhole(S, Facts, Body, std::move(Result), After);
    if (Understood && !Result.Refusals.empty()) {
      // With nothing split, all processes do what one device does.
      AsWhole.Refusals = std::move(Result.Refusals);
      keepWhole(S, Facts, Body, AsWhole);
      Result = std::move(AsWhole);
      After = std::move(AfterWhole);
    }
  } else if (Facts.Training && !Result.Refusals.empty()) {
    if (wouldDoInParts(S, Facts, Body))
      Result.WantUnsplit.insert(
          loaderOf(loaderOfLoop(S)->getType())->getCanonicalDecl());
  } else if (Facts.Unsplit) {
    if (std::optional<Effects> Parts = modelsInParts(S, Facts, Body)) {
      Result = std::move(*Parts);
      After = std::move(Env);
    }
  } else if (!Facts.Training) {
    if (std::optional<LoopPlan> Gather = planGather(Body, Result)) {
      Effects Gathered = attempt(S, Facts, *Gather);
      if (Gathered.Refusals.empty() && Gathered.Reads.empty()) {
        Effects::Loop Loop{&Facts, Body, {}, {}, Gather->Variables,
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
