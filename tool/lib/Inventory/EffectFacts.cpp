//===- EffectFacts.cpp - From what the interpreter found to facts ---------===//

#include "Taker.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

std::optional<TextRange> Taker::editable(SourceRange Range,
                                         TrainingProgram &Into) {
  std::optional<TextRange> R = Text.range(Range);
  if (!R)
    refuse(Into, Text.problem().Id, Range.getBegin(), Text.problem().Message,
           Text.problem().Remedy);
  return R;
}

bool Taker::split(const Expr *Object, const Expr *Whole, TextRange &ObjectRange,
                  TextRange &Tail, TrainingProgram &Into) {
  const std::optional<TextRange> All = editable(Whole->getSourceRange(), Into);
  if (!All)
    return false;
  const std::optional<TextRange> Part = editable(Object->getSourceRange(), Into);
  if (!Part)
    return false;
  const unsigned End = Part->Offset + Part->Length;
  if (Part->File != All->File || Part->Offset < All->Offset ||
      End > All->Offset + All->Length) {
    refuse(Into, "ACL0102", Whole->getExprLoc(),
           "what must change here is put together by macros",
           "Write it out.");
    return false;
  }
  ObjectRange = *Part;
  Tail = {All->File, End, All->Offset + All->Length - End};
  return true;
}

void Taker::addEffects(const FunctionDecl *F, const Effects &E,
                       TrainingProgram &Into) {
  for (const Finding &Refusal : E.Refusals)
    Into.Findings.push_back(Refusal);
  if (!E.Refusals.empty())
    return;
  const FunctionId In = Functions.of(F);
  addReads(E, Into);
  for (const Effects::Backward &B : E.Backwards)
    if (!B.Loss.replicated())
      refuse(Into, "ACL0128", B.Call->getExprLoc(),
             "the loss is not that of a whole batch, and no batch is being "
             "worked on here",
             "Call backward() in the loop over batches.");
  // Where only the number is wanted, the whole variable has it.
  std::set<const DeclRefExpr *> StaysWhole;
  for (const auto &[Size, Use] : E.Sizes) {
    if (!Use.Number)
      continue;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(Size);
        Member && !Use.Shape)
      if (const auto *Name = dyn_cast<DeclRefExpr>(
              plain(Member->getImplicitObjectArgument()));
          Name && llvm::any_of(E.Loops, [&](const Effects::Loop &Loop) {
            return llvm::is_contained(Loop.Uses, Name);
          })) {
        StaysWhole.insert(Name);
        continue;
      }
    if (Use.Shape) {
      refuse(Into, "ACL0129", Size->getExprLoc(),
             "the size of the batch is used both as a shape, which must be "
             "this process's part, and as a number, which must be the whole",
             "Take the size twice: x.size(0) for the shape, another variable "
             "for the number.");
      continue;
    }
    // x.size(0), or x.sizes()[0].
    const Expr *Call = Size;
    if (const auto *Subscript = dyn_cast<CXXOperatorCallExpr>(Size))
      Call = plain(Subscript->getArg(0));
    const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
    BatchSizeFact Fact;
    Fact.In = In;
    if (!Member) {
      refuse(Into, "ACL0129", Size->getExprLoc(),
             "the size of the batch is not taken from a tensor directly",
             "Write x.size(0).");
      continue;
    }
    if (split(Member->getImplicitObjectArgument(), Size, Fact.Object, Fact.Tail,
              Into))
      Into.BatchSizes.push_back(Fact);
  }
  for (const auto &[Size, Function] : E.LocalSizes) {
    if (const auto R = editable(Size->getSourceRange(), Into))
      Into.LocalSizes.push_back({Functions.of(Function), *R});
  }
  for (const auto &[Call, Function] : E.Squeezes) {
    Squeezed.insert(Call);
    BatchSizeFact Fact;
    Fact.In = Functions.of(Function);
    if (split(Call->getImplicitObjectArgument(), Call, Fact.Object, Fact.Tail,
              Into))
      Into.Squeezes.push_back(Fact);
  }
  for (const auto &[Call, Function] : E.Replicated)
    if (const auto R = editable(Call->getSourceRange(), Into))
      Into.Replicated.push_back({Functions.of(Function), *R});
  for (const auto &[Call, Function] : E.Parallel)
    addParallel(Call, Functions.of(Function), Into);
  for (const auto &[Model, Function] : E.Scripted)
    if (const auto R = editable(Model->getSourceRange(), Into))
      Into.Scripted.push_back({Functions.of(Function), *R});
  SqueezedWhole.insert(E.WholeSqueezes.begin(), E.WholeSqueezes.end());
  for (const Effects::Loop &Loop : E.Loops) {
    if (Loop.Whole) {
      addWholeLoop(Loop, Into);
      continue;
    }
    if (Loop.Facts->Training) {
      TrainingLoopFact Fact;
      Fact.In = In;
      Fact.HasLoader = Loop.Facts->sharesBatches();
      const std::optional<LinePoint> Top = Text.topOf(Loop.Body);
      if (!Top) {
        refuse(Into, "ACL0102", Loop.Body->getBeginLoc(),
               "the loop over batches is written by a macro, or stands in a "
               "file that may not be changed",
               "Write the loop out.");
        continue;
      }
      Fact.BodyTop = *Top;
      for (const ValueDecl *Model : Loop.Models)
        Fact.Models.push_back(objectOf(Model, F));
      Into.TrainingLoops.push_back(Fact);
      for (const Effects::Backward &B : Loop.Backwards)
        addBackward(B, Into, Into.Backwards);
    }
    addParts(Loop, In, StaysWhole, Into);
    for (const auto &[Variable, Dim] : Loop.States) {
      const std::optional<LinePoint> At = Text.before(Loop.Facts->Loop);
      if (At)
        Into.States.push_back({In, Variable->getNameAsString(), Dim, *At});
      else
        refuse(Into, "ACL0102", Loop.Facts->Loop->getBeginLoc(),
               "there is no line before this loop on which '" +
                   Variable->getNameAsString() + "' could be split");
    }
    if (Loop.Variables.empty())
      continue;
    BatchVariablesFact Fact;
    Fact.In = In;
    for (const ValueDecl *V : Loop.Variables)
      Fact.Variables.push_back(V->getNameAsString());
    const std::optional<LinePoint> At = Text.before(Loop.At);
    if (!At) {
      refuse(Into, "ACL0102", Loop.At->getBeginLoc(),
             "there is no line here on which the batch could be split or "
             "gathered");
      continue;
    }
    Fact.At = *At;
    (Loop.Gathers ? Into.Gathers : Into.Shards).push_back(Fact);
  }
}

/// A function that several loops call has one text: what they need must agree.
void Taker::addBackward(const Effects::Backward &B, TrainingProgram &Into,
                        std::vector<BackwardFact> &List) {
  Followed.insert(B.Call);
  BackwardFact Fact;
  Fact.In = Functions.of(B.In);
  Fact.Loss = B.Loss.P;
  if (const Expr *Retain = retainGraphOf(B.Call)) {
    const std::optional<TextRange> R =
        editable(Retain->getSourceRange(), Into);
    if (!R)
      return;
    Fact.RetainGraph = Text.text(*R).str();
  }
  if (!split(B.Call->getImplicitObjectArgument(), B.Call, Fact.Object,
             Fact.Tail, Into))
    return;
  auto [It, New] = LossAt.try_emplace({Fact.Object.File, Fact.Object.Offset},
                                      Fact.Loss);
  // What is equal on all processes counts as a mean.
  if (!New && It->second == Placement::Replicated &&
      Fact.Loss == Placement::MeanOfRows)
    It->second = Fact.Loss;
  const bool Agree = It->second == Fact.Loss ||
                     (It->second == Placement::MeanOfRows &&
                      Fact.Loss == Placement::Replicated);
  if (!Agree)
    refuse(Into, "ACL0125", B.Call->getExprLoc(),
           "the loss is a mean over the batch in one call of '" +
               B.In->getNameAsString() + "' and a sum in another",
           "Write it as two functions.");
  for (const BackwardFact &Known : List)
    if (Known.Object.File == Fact.Object.File &&
        Known.Object.Offset == Fact.Object.Offset)
      return;
  List.push_back(Fact);
}

void Taker::addWholeLoop(const Effects::Loop &Loop, TrainingProgram &Into) {
  WholeLoopFact Fact;
  Fact.Why = Loop.WhyWhole;
  const std::string Why =
      Fact.Why.empty() ? std::string() : ": " + Fact.Why.front().Message;
  const SourceLocation Loc = Loop.Facts->Loop->getBeginLoc();
  Fact.Note =
      Loop.InParts
          ? Text.finding("ACL0180", Loc,
                         "the processes share out the calls of models in this "
                         "training loop, and do the rest of it in full" +
                             Why,
                         "Nothing has to be done: the results are those of one "
                         "device.")
          : Text.finding("ACL0175", Loc,
                         "every process runs this training loop in full" + Why,
                         WholeRemedy);
  Fact.InParts = Loop.InParts;
  for (const Effects::Backward &B : Loop.Backwards)
    addBackward(B, Into, Fact.Backwards);
  Into.WholeLoops.push_back(std::move(Fact));
}

/// `net->forward(x)`: what stands before its first argument is written anew.
void Taker::addParallel(const CallExpr *Call, FunctionId In,
                        TrainingProgram &Into) {
  const Expr *Model = nullptr;
  unsigned First = 0;
  if (const auto *Operator = dyn_cast<CXXOperatorCallExpr>(Call)) {
    Model = Operator->getArg(0);
    First = 1;
  } else {
    const auto *Callee = cast<MemberExpr>(plain(Call->getCallee()));
    Model = Callee->getBase();
    // The object that an operator-> gives the pointer of.
    if (const auto *Arrow = dyn_cast<CXXOperatorCallExpr>(plain(Model));
        Arrow && Arrow->getOperator() == OO_Arrow)
      Model = Arrow->getArg(0);
  }
  const auto All = editable(Call->getSourceRange(), Into);
  const auto Object = editable(Model->getSourceRange(), Into);
  const auto Argument =
      editable(Call->getArg(First)->getSourceRange(), Into);
  if (!All || !Object || !Argument)
    return;
  if (All->File != Argument->File || Argument->Offset < All->Offset ||
      Object->Offset != All->Offset)
    return refuse(Into, "ACL0102", Call->getExprLoc(),
                  "what must change here is put together by macros",
                  "Write it out.");
  ParallelCallFact Fact;
  Fact.In = In;
  Fact.Head = {All->File, All->Offset, Argument->Offset - All->Offset};
  Fact.Model = Text.text(*Object).str();
  Into.Parallel.push_back(std::move(Fact));
}

bool Taker::sharesWork() const {
  return !Program.TrainingLoops.empty() || !Program.Parallel.empty();
}

/// Where nothing at all is shared, the migration is of no use.
void Taker::settleWholeLoops() {
  const bool Shares = sharesWork();
  for (WholeLoopFact &Loop : Program.WholeLoops) {
    if (!Shares) {
      append(Program.Findings, Loop.Why);
      continue;
    }
    append(Program.Backwards, Loop.Backwards);
    Program.Findings.push_back(Loop.Note);
  }
}

void Taker::addReads(const Effects &E, TrainingProgram &Into) {
  // Whether all calls of the function in which it is written agree.
  auto Agree = [&](const Effects::Read &Read, const TextRange &R) {
    auto [It, New] = ReadAt.try_emplace(
        {R.File, R.Offset}, std::pair(Read.P, Read.LastBatch));
    if (!New && It->second != std::pair(Read.P, Read.LastBatch))
      refuse(Into, "ACL0126", Read.Object->getExprLoc(),
             "'" + Read.In->getNameAsString() +
                 "' reads a number of this process's part of the batch in one "
                 "call and something else in another",
             "Write it as two functions, or return the tensor and read it in "
             "the loop.");
    return New;
  };
  for (const Effects::Read &Read : E.WholeReads)
    if (const auto R = Text.range(Read.Object->getSourceRange()))
      Agree(Read, *R);
  for (const Effects::Read &Read : E.Reads) {
    MetricReadFact Fact;
    Fact.In = Functions.of(Read.In);
    Fact.Value = Read.P;
    Fact.LastBatch = Read.LastBatch;
    const auto R = editable(Read.Object->getSourceRange(), Into);
    if (!R)
      continue;
    Fact.Object = *R;
    const bool Known = llvm::any_of(Into.MetricReads, [&](const auto &Other) {
      return Other.Object.File == R->File &&
             Other.Object.Offset == R->Offset &&
             Other.Object.Length == R->Length;
    });
    Agree(Read, *R);
    if (!Known)
      Into.MetricReads.push_back(Fact);
  }
}

void Taker::addParts(const Effects::Loop &Loop, FunctionId In,
                     const std::set<const DeclRefExpr *> &StaysWhole,
                     TrainingProgram &Into) {
  for (const Expr *E : Loop.Inline)
    if (const auto R = editable(E->getSourceRange(), Into))
      Into.InlineShards.push_back({In, *R});
  if (!Loop.Parts.empty()) {
    BatchPartsFact Fact;
    Fact.In = In;
    for (const ValueDecl *V : Loop.Parts)
      Fact.Variables.push_back(V->getNameAsString());
    const std::optional<LinePoint> At = Text.before(Loop.At);
    if (!At)
      return refuse(Into, "ACL0102", Loop.At->getBeginLoc(),
                    "there is no line here on which the batch could be split");
    Fact.At = *At;
    for (const DeclRefExpr *E : Loop.Uses) {
      if (StaysWhole.count(E))
        continue;
      const auto Range = editable(E->getLocation(), Into);
      const auto Known = llvm::find(Loop.Parts, E->getDecl());
      if (Range && Known != Loop.Parts.end())
        Fact.Uses.push_back(
            {static_cast<unsigned>(Known - Loop.Parts.begin()), *Range});
    }
    Into.Parts.push_back(std::move(Fact));
  }
  if (Loop.At && !Loop.Gathers)
    refuse(Into, "ACL0150", Loop.At->getBeginLoc(),
           "every process makes the whole batch up to here and then works on "
           "its part of it",
           "Nothing has to be done; a torch::data loader would share the "
           "making of batches, too.");
}

/// Whether `S`, in the body of a loop, can end that loop: a `break` of its own,
/// a `return`, a `goto`. An exception that is caught inside of the program is
/// refused elsewhere (Hazards.cpp).
static bool leavesLoop(const Stmt *S, bool BreakIsOwn) {
  if (!S || isa<LambdaExpr>(S))
    return false;
  if (isa<ReturnStmt, GotoStmt, IndirectGotoStmt>(S))
    return true;
  if (isa<BreakStmt>(S))
    return BreakIsOwn;
  if (isa<ForStmt, WhileStmt, DoStmt, CXXForRangeStmt, SwitchStmt>(S))
    BreakIsOwn = false;
  return llvm::any_of(S->children(), [&](const Stmt *Child) {
    return leavesLoop(Child, BreakIsOwn);
  });
}

/// A loader cannot see that its loop was left, and would go on to take what
/// comes behind the loop for work on its last batch. A training step ends by
/// itself; the body of another loop needs a guard.
void Taker::addLeftLoop(const FunctionDecl *F, const BatchLoop &Loop,
                        TrainingProgram &Into) {
  if (!Loop.sharesBatches() || Loop.Training)
    return;
  const Stmt *Body = bodyOf(Loop.Loop);
  if (!leavesLoop(Body, /*BreakIsOwn=*/true))
    return;
  const auto *Block = dyn_cast<CompoundStmt>(Body);
  const std::optional<LinePoint> Top =
      Block ? Text.topOf(Block) : std::nullopt;
  if (!Top) {
    refuse(Into, "ACL0102", Body->getBeginLoc(),
           "the loop can be left before its end, and its body has no place for "
           "the guard that says so: it is written by a macro, has no braces, or "
           "stands in a file that may not be changed",
           "Write the loop out, with braces.");
    return;
  }
  Into.LeftLoops.push_back({Functions.of(F), *Top});
}
