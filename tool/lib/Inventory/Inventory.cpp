//===- Inventory.cpp - From the AST to facts ------------------------------===//

#include "accel/migrate/Inventory.h"

#include "FactFinder.h"
#include "Interpreter.h"
#include "TorchTypes.h"

#include "clang/AST/RecursiveASTVisitor.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace accel::migrate;
using namespace clang;

namespace {

/// Takes the inventory of one unit.
class Taker {
public:
  Taker(ASTContext &Context, const PlanOptions &Options)
      : Text(Context, Options), Index(Context),
        Differs(Index, Differing::Clock, /*Decides=*/true),
        Functions(Text, Program.Functions) {}

  TrainingProgram take();

private:
  void takeFunction(const FunctionDecl *F, TrainingProgram &Into);
  void addEffects(const FunctionDecl *F, const Effects &E,
                  TrainingProgram &Into);
  void addBackward(const Effects::Backward &B, TrainingProgram &Into,
                   std::vector<BackwardFact> &List);
  void addWholeLoop(const Effects::Loop &Loop, TrainingProgram &Into);
  void settleWholeLoops();
  bool refused() const {
    return llvm::any_of(Program.Findings, [](const Finding &F) {
      return F.Level == Severity::Refusal;
    });
  }
  void checkOutside(const BackwardCall &B);
  void addReads(const Effects &E, TrainingProgram &Into);
  void addParts(const Effects::Loop &Loop, FunctionId In,
                const std::set<const DeclRefExpr *> &StaysWhole,
                TrainingProgram &Into);
  void addLeftLoop(const FunctionDecl *F, const BatchLoop &Loop,
                   TrainingProgram &Into);
  void merge(TrainingProgram &&Part);
  void takeMissing();
  void checkLoops();
  void checkProgram();
  void checkLoaders();
  void checkSideEffects();
  bool migratedAlready() const;
  std::optional<TextRange> editable(SourceRange Range, TrainingProgram &Into);
  /// `Object` and what is behind it in `Whole`.
  bool split(const Expr *Object, const Expr *Whole, TextRange &ObjectRange,
             TextRange &Tail, TrainingProgram &Into);
  void refuse(TrainingProgram &Into, llvm::StringRef Id, SourceLocation Loc,
              std::string Message, std::string Remedy = "") {
    Into.Findings.push_back(
        Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
  }

  TrainingProgram Program;
  SourceText Text;
  ProgramIndex Index;
  Differing Differs;
  FunctionTable Functions;
  /// Calls of backward that the analysis came to.
  std::set<const Expr *> Followed;
  /// Calls of squeeze() on parts of a batch, and on tensors in full.
  std::set<const Expr *> Squeezed, SqueezedWhole;
  /// What is known of text that several callers run, by its place.
  std::map<std::pair<std::string, unsigned>, Placement> LossAt, ReadAt;
  std::vector<HostDraw> DatasetDraws, OtherDraws;
  std::vector<FileUse> Files;
};

} // namespace

template <typename T> static void append(std::vector<T> &To, std::vector<T> &From) {
  To.insert(To.end(), std::make_move_iterator(From.begin()),
            std::make_move_iterator(From.end()));
}

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
    const auto *M = dyn_cast<CXXMethodDecl>(Function);
    const FunctionId SizeIn = M && M->getParent()->isLambda()
                                  ? Functions.ofInitialiser(Size)
                                  : Functions.of(Function);
    if (const auto R = editable(Size->getSourceRange(), Into))
      Into.LocalSizes.push_back({SizeIn, *R});
  }
  for (const auto &[Call, Function] : E.Squeezes) {
    Squeezed.insert(Call);
    const auto *M = dyn_cast<CXXMethodDecl>(Function);
    BatchSizeFact Fact;
    Fact.In = M && M->getParent()->isLambda() ? Functions.ofInitialiser(Call)
                                              : Functions.of(Function);
    if (split(Call->getImplicitObjectArgument(), Call, Fact.Object, Fact.Tail,
              Into))
      Into.Squeezes.push_back(Fact);
  }
  SqueezedWhole.insert(E.WholeSqueezes.begin(), E.WholeSqueezes.end());
  for (const Effects::Loop &Loop : E.Loops) {
    if (Loop.Whole) {
      addWholeLoop(Loop, Into);
      continue;
    }
    if (Loop.Facts->Training) {
      TrainingLoopFact Fact;
      Fact.In = In;
      Fact.HasLoader = Loop.Facts->HasLoader;
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

static constexpr char WholeRemedy[] =
    "Nothing has to be done: the results are those of one device, and it takes "
    "as long as on one.";

void Taker::addWholeLoop(const Effects::Loop &Loop, TrainingProgram &Into) {
  WholeLoopFact Fact;
  Fact.Why = Loop.WhyWhole;
  Fact.Note = Text.finding(
      "ACL0175", Loop.Facts->Loop->getBeginLoc(),
      "every process runs this training loop in full" +
          (Fact.Why.empty() ? std::string() : ": " + Fact.Why.front().Message),
      WholeRemedy);
  for (const Effects::Backward &B : Loop.Backwards)
    addBackward(B, Into, Fact.Backwards);
  Into.WholeLoops.push_back(std::move(Fact));
}

/// Where nothing at all is shared, the migration is of no use.
void Taker::settleWholeLoops() {
  const bool Shares = !Program.TrainingLoops.empty();
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
    auto [It, New] = ReadAt.try_emplace({R.File, R.Offset}, Read.P);
    if (!New && It->second != Read.P)
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
  if (!Loop.HasLoader || Loop.Training)
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

void Taker::takeFunction(const FunctionDecl *F, TrainingProgram &Into) {
  FactFinder Finder(Text, Index, Differs, Functions, Into);
  Finder.run(F);
  llvm::append_range(DatasetDraws, Finder.DatasetDraws);
  llvm::append_range(OtherDraws, Finder.OtherDraws);
  llvm::append_range(Files, Finder.Files);
  if (Index.runsBatches(F)) {
    Interpreter I(Text, Index, Differs);
    const Effects E = I.interpret(F);
    addEffects(F, E, Into);
    for (const auto &[Loop, Facts] : Index.Loops)
      if (Facts.In == F && !Facts.InLambda && !E.Visited.count(Loop))
        refuse(Into, "ACL0100", Loop->getBeginLoc(),
               "the analysis does not come to this loop over batches",
               "Take out what ends the function before it.");
      else if (Facts.In == F)
        addLeftLoop(F, Facts, Into);
  }
  if (!Index.BeforeMain.count(F))
    return;
  if (!Into.Prints.empty())
    Into.Findings.push_back(Text.finding(
        "ACL0152", F->getLocation(),
        "'" + F->getNameAsString() +
            "' prints, and also runs before main begins, when no accelerator "
            "exists: its lines stay as they are and every process prints them"));
  Into.Prints.clear();
  if (!Into.Devices.empty() || !Into.Optimizers.empty() ||
      !Into.Loaders.empty() || !Into.Saves.empty() ||
      !Into.Broadcasts.empty() || !Into.Guards.empty() || !Into.Paths.empty())
    refuse(Into, "ACL0139", F->getLocation(),
           "'" + F->getNameAsString() +
               "' runs before main begins, when no accelerator exists",
           "Call it from main.");
}

namespace {
/// Whether code has to do with models or optimizers.
class TrainableFinder : public RecursiveASTVisitor<TrainableFinder> {
public:
  bool VisitExpr(Expr *E) {
    Found |= moduleOf(E->getType()) || optimizerOf(E->getType());
    return !Found;
  }
  bool Found = false;
};
} // namespace

/// A backward that no loop over batches runs: no batch is being split then, and
/// every process calculates what one device would.
void Taker::checkOutside(const BackwardCall &B) {
  const SourceLocation Loc = B.Call->getExprLoc();
  if (Program.TrainingLoops.empty()) {
    if (refused())
      return;
    refuse(Program, "ACL0108", Loc,
           "backward() is not called in a loop over batches, and nothing else "
           "in the program can be shared between processes",
           "Move the call into a loop over batches.");
    return;
  }
  // Only what an optimizer may step on has to go through the accelerator.
  TrainableFinder Trainable;
  Trainable.TraverseStmt(B.Writer->getBody());
  if (Trainable.Found) {
    for (unsigned I = 0; I < B.Call->getNumArgs(); ++I)
      if (!isa<CXXDefaultArgExpr>(B.Call->getArg(I)))
        return refuse(Program, "ACL0109", Loc,
                      "backward() is called with arguments",
                      "Call it without, or migrate this step by hand.");
    Value Loss;
    addBackward({B.Call, Loss, B.Writer}, Program, Program.Backwards);
  }
  Program.Findings.push_back(Text.finding(
      "ACL0175", Loc,
      "every process calculates this backward() in full: it is not in a loop "
      "over batches",
      WholeRemedy));
}

void Taker::checkLoops() {
  settleWholeLoops();
  for (const Expr *Call : Squeezed)
    if (SqueezedWhole.count(Call))
      refuse(Program, "ACL0142", Call->getExprLoc(),
             "this squeeze() is applied to a part of the batch in one call and "
             "to a tensor that every process has in full in another",
             "Name the dimension from the front, for example squeeze(1).");
  const bool Refused = refused();
  for (const BackwardCall &B : Index.Backwards) {
    const SourceLocation Loc = B.Call->getExprLoc();
    const bool Stepped = B.Step || Index.InStep.count(B.Writer);
    if (B.InLambda && !Index.InStep.count(B.Writer))
      refuse(Program, "ACL0106", Loc, "backward() is called in a lambda",
             "Move the training step into the loop's body.");
    else if (!Stepped)
      checkOutside(B);
    else if (!Refused && !Followed.count(B.Call))
      refuse(Program, "ACL0100", Loc,
             "the analysis does not come to this call of backward()",
             "Call it in the loop over batches.");
  }
  for (const auto &[Loop, Facts] : Index.Loops)
    if (Facts.InLambda && !Facts.Training)
      refuse(Program, "ACL0106", Loop->getBeginLoc(),
             "the loop over batches stands in a lambda",
             "Make the lambda a function.");
  for (const FunctionDecl *F : Index.NeverInstantiated) {
    // Its types are not known, and so not what it does.
    const std::string Body = Text.text(F->getSourceRange());
    if (Body.find("backward") != std::string::npos &&
        Text.mayEdit(F->getLocation()))
      refuse(Program, "ACL0103", F->getLocation(),
             "the template '" + F->getNameAsString() +
                 "' is used nowhere in this file, so that the types in it are "
                 "not known",
             "Name a file on the command line that uses it.");
  }
}

/// A loop over batches shares them out because its loader was made by
/// accel::data::make_data_loader; one that comes from elsewhere gives every
/// process whole batches.
void Taker::checkLoaders() {
  for (const auto &[Loop, Facts] : Index.Loops) {
    if (!Facts.HasLoader)
      continue;
    const CXXRecordDecl *Used = loaderOf(loaderOfLoop(Loop)->getType());
    if (!Index.LoadersMade.count(Used->getCanonicalDecl()))
      refuse(Program, "ACL0164", Loop->getBeginLoc(),
             "the loader of this loop is not made by torch::data::"
             "make_data_loader in what is seen of the program",
             "Name the file that makes it on the command line, too.");
  }
}

/// A pointer or a holder that points to nothing yet.
static bool isEmpty(const Expr *Init) {
  Init = plain(Init);
  if (isa<CXXNullPtrLiteralExpr, GNUNullExpr, ImplicitValueInitExpr>(Init))
    return true;
  if (const auto *List = dyn_cast<InitListExpr>(Init))
    return List->getNumInits() == 0 ||
           (List->getNumInits() == 1 && isEmpty(List->getInit(0)));
  const auto *Made = dyn_cast<CXXConstructExpr>(Init);
  if (!Made)
    return false;
  if (Made->getNumArgs() == 0)
    return isInStd(Made->getConstructor());
  return isEmpty(Made->getArg(0));
}

void Taker::checkProgram() {
  if (!Index.Main)
    refuse(Program, "ACL0162", SourceLocation(),
           "no main() is seen: the program that uses this code must create the "
           "Accelerator, or the calls here will stop with an error that says so",
           "Write `accel::Accelerator accelerator(accel::AcceleratorOptions()"
           ".match_single_device(true));` at the top of its main.");
  checkLoaders();
  if (Index.Backwards.empty() || Program.Optimizers.empty()) {
    if (Index.Backwards.empty())
      refuse(Program, "ACL0117",
             Index.Main ? Index.Main->getLocation() : SourceLocation(),
             "there is an optimizer but no backward() in this file");
    else if (std::none_of(Program.Findings.begin(), Program.Findings.end(),
                          [](const Finding &F) {
                            return F.Level == Severity::Refusal;
                          }))
      refuse(Program, "ACL0117", Index.Backwards[0].Call->getExprLoc(),
             "no optimizer is made in this file",
             "Name the file that makes it on the command line.");
  }
  for (const VarDecl *V : Index.Globals) {
    const CXXRecordDecl *D = recordOf(V->getType());
    if (!D || !D->getIdentifier() || !isTorch(D) || !V->getInit())
      continue;
    if (D->getName() == "Device" && deviceLiteral(V->getInit()) != DeviceLiteral::Cpu)
      refuse(Program, "ACL0139", V->getLocation(),
             "the device '" + V->getNameAsString() +
                 "' is chosen before main begins, when no accelerator exists",
             "Make it a local variable of main.");
    // A model that is prepared gets the parameters of process 0.
    const std::string Name = V->getNameAsString();
    const bool Prepared =
        moduleOf(V->getType()) &&
        llvm::any_of(Program.Optimizers, [&](const OptimizerFact &F) {
          return F.Model == Name || F.Model == "*" + Name;
        });
    if (Prepared || isEmpty(V->getInit()))
      continue;
    if (optimizerOf(V->getType()) || moduleOf(V->getType()))
      refuse(Program, "ACL0116", V->getLocation(),
             "'" + V->getNameAsString() +
                 "' is a global variable that is made before main begins",
             "Make it a local variable of main.");
  }
  checkSideEffects();
  if (Program.Devices.empty() && !Program.Optimizers.empty())
    refuse(Program, "ACL0151",
           Index.Main ? Index.Main->getLocation() : SourceLocation(),
           "the program chooses no device: it trains where its tensors are, on "
           "the CPU",
           "To train on GPUs, move the model and each batch with "
           ".to(accelerator.device()).");
}

/// What is set up before main, and what two functions do to each other.
void Taker::checkSideEffects() {
  FactFinder Finder(Text, Index, Differs, Functions, Program);
  for (const VarDecl *V : Index.Globals) {
    if (!Text.mayEdit(V->getLocation()))
      continue;
    if (drawsPerProcess(V->getInit()) && !isRandomDevice(recordOf(V->getType())))
      if (const CXXRecordDecl *D = recordOf(V->getType()); D && isEngine(D))
        refuse(Program, "ACL0136", V->getLocation(),
               "'" + V->getNameAsString() +
                   "' is seeded with something that differs between processes",
               "Seed it with a constant.");
    Finder.global(V);
  }
  std::set<const CXXRecordDecl *> Early;
  for (const FunctionDecl *F : Index.BeforeMain)
    if (const auto *M = dyn_cast<CXXMethodDecl>(F))
      Early.insert(M->getParent());
  for (const VarDecl *V : Index.Globals)
    if (const CXXRecordDecl *D = recordOf(V->getType()))
      Early.insert(D);
  for (const FieldDecl *F : Index.Fields) {
    const auto *Owner = dyn_cast<CXXRecordDecl>(F->getParent());
    Finder.field(F, Owner, Early.count(Owner) != 0);
  }
  for (const HostDraw &Loads : DatasetDraws)
    for (const HostDraw &Other : OtherDraws)
      if (!Loads.Generator || !Other.Generator ||
          Loads.Generator == Other.Generator)
        refuse(Program, "ACL0136", Other.Call->getExprLoc(),
               "the data set and other code both draw random numbers of the "
               "host: each process loads other samples, so that the numbers "
               "drawn here would come to differ",
               "Give the data set a generator of its own, or draw with "
               "torch::rand.");
  const auto [Write, Read] = findReadBack(Index, Files);
  if (Write && Text.mayEdit(Write->Use->getExprLoc()))
    refuse(Program, "ACL0222", Read->Use->getExprLoc(),
           "this may read a file that the main process writes in line " +
               std::to_string(Text.SM.getExpansionLineNumber(
                   Write->Use->getExprLoc())) +
               ", before it is written",
           "Close the file, call accelerator.wait_for_everyone() on all "
           "processes, and read it then.");
}

/// Whether the unit knows accel's own Accelerator class.
bool Taker::migratedAlready() const {
  const ASTContext &Context = Index.Context;
  for (const NamedDecl *D : Context.getTranslationUnitDecl()->lookup(
           &Context.Idents.get("accel")))
    if (const auto *N = dyn_cast<NamespaceDecl>(D))
      for (const NamespaceDecl *R : N->redecls())
        for (const NamedDecl *A : R->lookup(&Context.Idents.get("Accelerator")))
          if (isa<CXXRecordDecl>(A))
            return true;
  return false;
}

void Taker::merge(TrainingProgram &&Part) {
  append(Program.Optimizers, Part.Optimizers);
  append(Program.Schedulers, Part.Schedulers);
  append(Program.Loaders, Part.Loaders);
  append(Program.Devices, Part.Devices);
  append(Program.TrainingLoops, Part.TrainingLoops);
  append(Program.LeftLoops, Part.LeftLoops);
  append(Program.Backwards, Part.Backwards);
  append(Program.WholeLoops, Part.WholeLoops);
  append(Program.MetricReads, Part.MetricReads);
  append(Program.Gathers, Part.Gathers);
  append(Program.Shards, Part.Shards);
  append(Program.Parts, Part.Parts);
  append(Program.InlineShards, Part.InlineShards);
  append(Program.BatchSizes, Part.BatchSizes);
  for (BatchSizeFact &Squeeze : Part.Squeezes)
    if (llvm::none_of(Program.Squeezes, [&](const BatchSizeFact &Known) {
          return Known.Tail.File == Squeeze.Tail.File &&
                 Known.Tail.Offset == Squeeze.Tail.Offset;
        }))
      Program.Squeezes.push_back(std::move(Squeeze));
  // A function that several loops call is seen with each of them.
  for (Spelled &Size : Part.LocalSizes)
    if (llvm::none_of(Program.LocalSizes, [&](const Spelled &Known) {
          return Known.Range.File == Size.Range.File &&
                 Known.Range.Offset == Size.Range.Offset;
        }))
      Program.LocalSizes.push_back(std::move(Size));
  append(Program.NormClips, Part.NormClips);
  append(Program.ValueClips, Part.ValueClips);
  append(Program.Prints, Part.Prints);
  append(Program.Saves, Part.Saves);
  append(Program.Broadcasts, Part.Broadcasts);
  append(Program.Paths, Part.Paths);
  append(Program.Guards, Part.Guards);
  append(Program.Findings, Part.Findings);
}

void Taker::takeMissing() {
  for (const FunctionDecl *F : Index.Missing) {
    MissingFunction M;
    M.Name = F->getNameAsString();
    if (const auto *Method = dyn_cast<CXXMethodDecl>(F))
      M.Class = Method->getParent()->getNameAsString();
    // Of a class template's specialisation, without its arguments.
    if (isa<CXXConstructorDecl>(F))
      M.Name = M.Class;
    else if (isa<CXXDestructorDecl>(F))
      M.Name = "~" + M.Class;
    M.DeclaredIn = Text.fileOf(F->getLocation());
    Program.Missing.push_back(std::move(M));
  }
}

TrainingProgram Taker::take() {
  takeMissing();
  Program.AlreadyMigrated = migratedAlready();
  if (Program.AlreadyMigrated) {
    Program.HasTraining = true;
    return std::move(Program);
  }
  // Facts of each spelled function: those of its first instantiation, with
  // which the others must agree.
  std::map<unsigned, std::string> Printed;
  for (const FunctionDecl *F : Index.Functions) {
    if (!Text.mayEdit(F->getLocation()) && !Index.runsBatches(F))
      continue;
    TrainingProgram Part;
    takeFunction(F, Part);
    std::string Facts;
    {
      llvm::raw_string_ostream OS(Facts);
      printFacts(Part, OS);
    }
    auto [It, New] =
        Printed.try_emplace(F->getBody()->getBeginLoc().getRawEncoding(), Facts);
    if (New)
      merge(std::move(Part));
    else if (It->second != Facts)
      refuse(Program, "ACL0101", F->getLocation(),
             "the instantiations of '" + F->getNameAsString() +
                 "' would have to be migrated in different ways, and they "
                 "share one text",
             "Write it as two functions.");
  }
  Program.HasTraining = !Index.Backwards.empty() ||
                        !Program.Optimizers.empty() ||
                        !Index.NeverInstantiated.empty();
  checkLoops();
  Program.HasTraining =
      !Index.Backwards.empty() || !Program.Optimizers.empty() ||
      std::any_of(Program.Findings.begin(), Program.Findings.end(),
                  [](const Finding &F) {
                    return F.Id == "ACL0103" || F.Id == "ACL0116";
                  });
  if (!Program.HasTraining)
    return std::move(Program);
  checkProgram();
  std::vector<Finding> Once;
  for (Finding &F : Program.Findings)
    if (std::none_of(Once.begin(), Once.end(), [&](const Finding &G) {
          return F.Id == G.Id && F.Line == G.Line && F.Column == G.Column &&
                 F.Range.File == G.Range.File && F.Message == G.Message;
        }))
      Once.push_back(std::move(F));
  llvm::stable_sort(Once, [](const Finding &A, const Finding &B) {
    return std::tie(A.Range.File, A.Range.Offset) <
           std::tie(B.Range.File, B.Range.Offset);
  });
  Program.Findings = std::move(Once);
  return std::move(Program);
}

TrainingProgram accel::migrate::takeInventory(ASTContext &Context,
                                              Preprocessor &PP,
                                              const PlanOptions &Options) {
  return Taker(Context, Options).take();
}
