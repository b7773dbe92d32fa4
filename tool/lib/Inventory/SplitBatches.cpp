//===- SplitBatches.cpp - Where a batch that no loader makes is split -----===//
//
// The loop is interpreted several times. With whole batches, to see what the
// model reads. Then with the variables that hold what it reads split directly
// before the first read; those that are set again behind it may be no batch but
// what the model made of one. Where that does not prove right (a slice is taken
// out of what was split, say), with each expression split where the model reads
// it. A wrong choice is not accepted: the interpretation has to come out clean.
//
//===----------------------------------------------------------------------===//

#include "Assignments.h"
#include "AstVisitor.h"
#include "Interpreter.h"
#include "TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

/// Remembers a whole batch that the training reads.
void Interpreter::noteBatch(const Expr *E, const Value &V) {
  if (BatchDepth == 0 || !V.replicated() || !V.MayHoldBatch)
    return;
  if (Splits)
    noteWholeShape(V, 0);
  // What a model's own functions make is no batch.
  if (inCallee() && V.Roots.empty())
    return;
  if (!Out->FirstModelRead)
    Out->FirstModelRead = Top;
  E = plain(E);
  for (const Effects::BatchRead &Known : Out->BatchReads)
    if (Known.E == E)
      return;
  Out->BatchReads.push_back({E, V.Roots, inCallee(), V.MaybeFolded});
}

static bool inside(const Stmt *S, SourceLocation Loc, const SourceManager &SM) {
  return SM.isBeforeInTranslationUnit(S->getBeginLoc(), Loc) &&
         SM.isBeforeInTranslationUnit(Loc, S->getEndLoc());
}

/// The reads that the loss may come from: those before the last backward, and
/// later ones of the same variables. What an evaluation in the loop reads is no
/// part of the step's batch.
static std::vector<Effects::BatchRead> trainingReads(const Effects &Whole,
                                                     const SourceManager &SM) {
  SourceLocation Last;
  for (const Effects::Backward &B : Whole.Backwards)
    if (Last.isInvalid() ||
        SM.isBeforeInTranslationUnit(Last, B.Call->getEndLoc()))
      Last = B.Call->getEndLoc();
  std::vector<Effects::BatchRead> Result, Later;
  std::set<const ValueDecl *> Roots;
  for (const Effects::BatchRead &Read : Whole.BatchReads) {
    const bool Before =
        Read.InCallee || Last.isInvalid() ||
        SM.isBeforeInTranslationUnit(Read.E->getBeginLoc(), Last);
    (Before ? Result : Later).push_back(Read);
    if (Before)
      Roots.insert(Read.Roots.begin(), Read.Roots.end());
  }
  for (Effects::BatchRead &Read : Later)
    if (!Read.Roots.empty() && llvm::all_of(Read.Roots, [&](const ValueDecl *V) {
          return Roots.count(V) != 0;
        }))
      Result.push_back(std::move(Read));
  return Result;
}

/// `NotSetBehind`: variables that are set behind the first read stay out; what
/// the model made of the batch is no batch.
std::optional<LoopPlan> Interpreter::planShard(const CompoundStmt *Body,
                                               Effects &Whole, SplitWays Ways) {
  const bool AllInline =
      Ways == SplitWays::Inline || Ways == SplitWays::InlineNotSetBehind;
  const bool NotSetBehind = Ways == SplitWays::NotSetBehind ||
                            Ways == SplitWays::InlineNotSetBehind;
  const SourceManager &SM = Context.getSourceManager();
  bool Good = true;
  auto Refuse = [&](llvm::StringRef Id, SourceLocation Loc,
                    std::string Message, std::string Remedy) {
    Whole.refuse(Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
    Good = false;
  };
  if (Whole.BatchReads.empty() || !Whole.FirstModelRead) {
    Refuse("ACL0118", Body->getBeginLoc(),
           "no tensor of a batch is seen that a model reads in this loop",
           "Split the batch with accelerator.shard_batch(x) where it is "
           "complete.");
    return std::nullopt;
  }
  LoopPlan P;
  P.Kind = LoopPlan::Shard;
  P.At = Whole.FirstModelRead;
  auto Add = [](auto &List, auto *What) {
    if (!llvm::is_contained(List, What))
      List.push_back(What);
  };
  auto Inline = [&](const Effects::BatchRead &Read) {
    if (Read.InCallee || !isTensor(Read.E->getType()))
      return Refuse("ACL0119", Read.E->getExprLoc(),
                    "'" + spelled(Read.E) +
                        "' belongs to the batch that the model reads, and is "
                        "not a tensor that can be split here",
                    "Name the complete batch in the loop body, and split it "
                    "with x = accelerator.shard_batch(x) before the model "
                    "reads it.");
    Add(P.Inline, Read.E);
  };
  auto IsSetBehind = [&](const ValueDecl *V) {
    return isSetBehind(Body, V, P.At->getBeginLoc(), SM);
  };
  for (const Effects::BatchRead &Read : trainingReads(Whole, SM)) {
    if (NotSetBehind && !Read.Roots.empty() &&
        llvm::all_of(Read.Roots, IsSetBehind))
      continue;
    if (AllInline || Read.Roots.empty()) {
      Inline(Read);
      continue;
    }
    for (const ValueDecl *V : Read.Roots) {
      if (NotSetBehind && IsSetBehind(V))
        continue;
      if (!isTensor(V->getType())) {
        Inline(Read);
        continue;
      }
      if (!inside(Body, V->getLocation(), SM))
        Add(P.Parts, V);
      else if (!SM.isBeforeInTranslationUnit(V->getLocation(),
                                             P.At->getBeginLoc()))
        Inline(Read);
      else if (isAssignable(V))
        Add(P.Variables, V);
      else
        Add(P.Parts, V);
    }
  }
  if (!Good)
    return std::nullopt;
  return P;
}

namespace {
/// What a variable of the loop's body is made from: the tensors that are made
/// outside of it. Fails where it is set more than once.
class SourcesOf : public AstVisitor {
public:
  SourcesOf(const CompoundStmt *Body, const SourceManager &SM,
            std::vector<const ValueDecl *> &Sources)
      : Body(Body), SM(SM), Sources(Sources) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    return !isTensor(E->getDecl()->getType()) || add(E->getDecl());
  }
  bool add(const ValueDecl *V) {
    if (!inside(Body, V->getLocation(), SM)) {
      if (!llvm::is_contained(Sources, V))
        Sources.push_back(V);
      return true;
    }
    const auto *Variable = dyn_cast<VarDecl>(V);
    return Variable && Variable->getInit() &&
           !isSetBehind(Body, V, Body->getBeginLoc(), SM) &&
           TraverseStmt(const_cast<Expr *>(Variable->getInit()));
  }

private:
  const CompoundStmt *Body;
  const SourceManager &SM;
  std::vector<const ValueDecl *> &Sources;
};

class UseFinder : public AstVisitor {
public:
  explicit UseFinder(llvm::ArrayRef<const ValueDecl *> Of) : Of(Of) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    return !llvm::is_contained(Of, E->getDecl());
  }

private:
  llvm::ArrayRef<const ValueDecl *> Of;
};
} // namespace

/// Where a batch has several rows for each sample, as targets of shape
/// [samples * steps] beside inputs of shape [samples, steps], its tensors do not
/// have equally many rows any more. What they are cut out of is split instead,
/// as in `text.index({Slice(), Slice(i, i + steps)})`.
std::optional<LoopPlan> Interpreter::planSources(const CompoundStmt *Body,
                                                 const Effects &Whole) {
  const SourceManager &SM = Context.getSourceManager();
  const std::vector<Effects::BatchRead> Reads = trainingReads(Whole, SM);
  if (llvm::none_of(Reads, [](const auto &Read) { return Read.Folded; }))
    return std::nullopt;
  LoopPlan P;
  P.Kind = LoopPlan::Shard;
  SourcesOf Finder(Body, SM, P.Parts);
  for (const Effects::BatchRead &Read : Reads)
    if (Read.Roots.empty() ||
        !llvm::all_of(Read.Roots, [&](const ValueDecl *V) {
          return isKept(Body, V) || Finder.add(V); // A state is no batch.
        }))
      return std::nullopt;
  for (const Stmt *Child : Body->body())
    if (!P.At && !UseFinder(P.Parts).TraverseStmt(const_cast<Stmt *>(Child)))
      P.At = Child;
  if (!P.At)
    return std::nullopt;
  return P;
}

/// The loop, with its batch split where it is complete.
Effects Interpreter::splitWhole(const Stmt *S, const BatchLoop &Facts,
                                const CompoundStmt *Body, Effects Whole,
                                Environment &After) {
  const Environment Before = Env;
  std::optional<Effects> First;
  for (const SplitWays Ways :
       {SplitWays::Sources, SplitWays::Variables, SplitWays::NotSetBehind,
        SplitWays::Inline, SplitWays::InlineNotSetBehind}) {
    const bool Sources = Ways == SplitWays::Sources;
    Effects Tried = Whole;
    const std::optional<LoopPlan> P = Sources ? planSources(Body, Tried)
                                              : planShard(Body, Tried, Ways);
    if (Sources && !P)
      continue;
    if (P) {
      Env = Before;
      LoopPlan Tuned = *P;
      Tried = repaired(S, Facts, Body, Tuned);
      Effects::Loop &Loop = Tried.Loops.back();
      Loop.Variables = P->Variables;
      Loop.At = P->At;
      Loop.Parts = P->Parts;
      Loop.Uses = Tried.PartUses;
      Loop.Inline = P->Inline;
    }
    const bool Clean = Tried.Refusals.empty();
    // What is said in the end is what is wrong with the variables.
    if (Clean || (!First && !Sources)) {
      First = std::move(Tried);
      After = P ? std::move(Env) : Before;
    }
    if (Clean)
      break;
  }
  if (!First->Refusals.empty()) {
    Env = Before;
    if (std::optional<Effects> Parts = modelsInParts(S, Facts, Body)) {
      Parts->Loops.back().WhyWhole = std::move(First->Refusals);
      First = std::move(Parts);
      After = std::move(Env);
    }
  }
  Env = Before;
  return std::move(*First);
}

/// What the plan says of the statement that comes next.
void Interpreter::startPlan() {
  for (const ValueDecl *Variable : Plan->Variables) {
    Value &Slot = Env[Variable].V;
    Value V = Value::make(Placement::Replicated);
    if (Plan->Kind == LoopPlan::Shard) {
      V = Value::partOf(Slot);
    } else {
      V.MayHoldBatch = true;
      V.Rank = Slot.Rank;
    }
    Slot = V;
  }
  for (const ValueDecl *Variable : Plan->Parts) {
    auto It = Env.find(Variable);
    Parts[Variable] =
        Value::partOf(It == Env.end() ? Value() : It->second.V);
  }
}

/// The value of a name that the plan replaces by that of a part.
const Value *Interpreter::partOf(const DeclRefExpr *E) {
  auto It = Parts.find(E->getDecl());
  if (It == Parts.end() || !Plan || !Plan->At || !BatchBody)
    return nullptr;
  const SourceManager &SM = Context.getSourceManager();
  const SourceLocation Loc = E->getLocation();
  if (SM.isBeforeInTranslationUnit(Loc, Plan->At->getBeginLoc()) ||
      !inside(BatchBody, Loc, SM))
    return nullptr;
  if (!llvm::is_contained(Out->PartUses, E))
    Out->PartUses.push_back(E);
  return &It->second;
}
