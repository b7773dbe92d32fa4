//===- Entering.cpp - What enters: the batches of each training loop ------===//

#include "Enters.h"
#include "Groups.h"
#include "SideBySide.h"
#include "Sizes.h"
#include "Together.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// A loop, the functions of the program that it calls, and the lambdas that it
/// names, whose calls are part of it.
class LoopText {
public:
  LoopText(const Stmt *Loop, const ProgramIndex &Index) : Index(Index) {
    add(Loop);
  }

  /// What models are given there. What they give their own parts says nothing:
  /// it is whatever they are given.
  std::vector<const Expr *> Inputs;

  bool holds(SourceLocation Loc, const SourceManager &SM) const {
    return llvm::any_of(Texts,
                        [&](const Stmt *S) { return isWithin(Loc, S, SM); });
  }

private:
  bool InModel = false;

  void add(const Stmt *S) {
    if (!S || llvm::is_contained(Texts, S))
      return;
    Texts.push_back(S);
    eachIn<Expr>(S, [&](const Expr *E) {
      if (const auto *Call = dyn_cast<CallExpr>(E))
        addRunBy(Call);
      else if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
        if (const LambdaExpr *L = lambdaIn(Ref->getDecl()))
          add(bodyOf(L));
    });
  }
  void addRunBy(const CallExpr *E) {
    const FunctionDecl *F = E->getDirectCallee();
    if (F && !isLibrary(F))
      for (const FunctionDecl *Body : Index.ownBodiesOf(F)) {
        llvm::SaveAndRestore Within(InModel, InModel || isPartOfModel(Body));
        add(Body->getBody());
      }
    for (const FunctionDecl *Body : Index.callablesOf(E))
      add(Body->getBody());
    if (isTorch(F)) // The holder's operator() runs the model's forward.
      for (const FunctionDecl *Body : bodiesRunBy(E, Index)) {
        llvm::SaveAndRestore Within(InModel, true);
        add(Body->getBody());
      }
    if (const std::optional<ModelCall> Call = modelCallOf(E); Call && !InModel)
      llvm::append_range(Inputs, Call->Inputs);
  }

  const ProgramIndex &Index;
  std::vector<const Stmt *> Texts;
};
} // namespace

void LoaderFacts::namedCall(const CallExpr *E, const FunctionDecl *F,
                            llvm::StringRef Name) {
  if (Name == "make_data_loader" && isTorch(F))
    if (std::optional<TextRange> R = calledName(E->getCallee()))
      edit(EditKind::LoaderName, *R);
}

/// What batches are.
static std::set<const Expr *> expressionsOf(llvm::ArrayRef<Batch> Batches) {
  std::set<const Expr *> All;
  for (const Batch &B : Batches)
    All.insert(B.E);
  return All;
}

/// The buffers that are filled with parts of batches, of which `Cuts` has to know.
Entering::Buffers Entering::addBuffers(llvm::ArrayRef<Batch> Batches) {
  Cut Known = Cuts;
  Known.add(expressionsOf(Batches));
  Buffers Placed;
  for (Buffer &B : findBuffers(Index, Known))
    if (const std::optional<TextRange> R = editable(B.Made->getSourceRange())) {
      if (B.Variable)
        Placed.Variables.insert(B.Variable);
      Placed.Made.insert(B.Made);
      BufferFact Fact;
      Fact.In = Functions.at(B.Made->getExprLoc(), B.In);
      Fact.Range = *R;
      Fact.Like = std::move(B.Like);
      Fact.Dim = B.Dim;
      Program.Buffers.push_back(std::move(Fact));
    }
  Cuts.add(Placed.Made);
  return Placed;
}

/// Whether a batch is put together of others: torch::cat({s, a}, 1), where s and a are
/// batches, or what a function of the program makes of them. It is shared out as
/// they are.
static bool isMadeOf(const Batch &B, llvm::ArrayRef<Batch> Others,
                     const ASTContext &Context) {
  const SourceManager &SM = Context.getSourceManager();
  const auto *Call = dyn_cast<CallExpr>(plain(B.E));
  const FunctionDecl *F = calleeOf(Call);
  if (!F || isInStd(F))
    return false;
  if (isTorch(F)) {
    static const llvm::StringSet<> Joins = {"cat", "concat", "concatenate"};
    const bool ByRows = Call->getNumArgs() < 2 ||
                        constantOf(Call->getArg(1), Context).value_or(0) == 0;
    if (!Joins.count(torchNameOf(Call)) || ByRows)
      return false;
  }
  const std::set<const VarDecl *> Variables = variablesNamedIn(B.E);
  return llvm::any_of(Others, [&](const Batch &Other) {
    return Other.E != B.E &&
           llvm::any_of(Variables, [&](const VarDecl *V) {
             return variableOf(Other.E) == V ||
                    (V->getInit() &&
                     isWithin(Other.E->getExprLoc(), V->getInit(), SM));
           });
  });
}

namespace {
/// Batches that are embeddings.index({rows}), where rows comes of another batch: they are
/// shared out as that is.
class Chosen {
public:
  Chosen(const ProgramIndex &Index, llvm::ArrayRef<Batch> All)
      : Index(Index), All(All) {}

  bool has(const Batch &B) {
    const auto *Call = dyn_cast<CXXMemberCallExpr>(plain(B.E));
    const InitListExpr *Rows =
        torchNameOf(Call) == "index" ? listIn(Call->getArg(0)) : nullptr;
    if (!Rows)
      return false;
    // What is distributed is found in the whole program. Of most lists of rows it is
    // known from all batches that they come of none.
    if (!OfAll)
      OfAll.emplace(cutBy(nullptr));
    return hasAny(*OfAll, Rows) && hasAny(cutBy(B.E), Rows);
  }

private:
  /// What is distributed where all batches are but one.
  Cut cutBy(const Expr *But) const {
    std::set<const Expr *> Shared = expressionsOf(All);
    Shared.erase(But);
    Cut Result(Index, Cut::ByArguments);
    Result.add(Shared);
    return Result;
  }
  static bool hasAny(const Cut &Of, const InitListExpr *Rows) {
    return llvm::any_of(Rows->inits(), [&](const Expr *E) { return Of.in(E); });
  }

  const ProgramIndex &Index;
  llvm::ArrayRef<Batch> All;
  std::optional<Cut> OfAll;
};
} // namespace

/// Adds batches to what is shared out, where their text may be edited.
void Entering::enter(llvm::ArrayRef<Batch> Batches) {
  std::set<const Expr *> Shared;
  for (const Batch &B : Batches)
    if (const std::optional<TextRange> R = editable(B.E->getSourceRange())) {
      Shared.insert(B.E);
      Entered.push_back({B, *R});
    }
  Cuts.add(Shared);
}

/// The changes that share the batches out.
void Entering::addEdits() {
  std::vector<Batch> All;
  for (const auto &[B, R] : Entered)
    All.push_back(B);
  std::set<const Expr *> OnLines;
  for (const SideBySide &S : findSideBySide(All))
    if (const std::optional<LinePoint> P = Text.after(S.Last)) {
      VariablesFact Fact;
      Fact.In = Functions.at(S.Last->getBeginLoc(), S.In);
      for (const VarDecl *V : S.Variables)
        Fact.Variables.push_back(V->getNameAsString());
      Fact.At = *P;
      Program.Distributed.push_back(std::move(Fact));
      OnLines.insert(S.Batches.begin(), S.Batches.end());
    }
  for (const auto &[B, R] : Entered)
    if (!OnLines.count(B.E))
      Program.Edits.push_back(
          {B.StepsFirst ? EditKind::BatchStepsFirst : EditKind::Batch,
           Functions.at(B.E->getExprLoc(), B.In), R});
}

/// Batches that models have helped to make: samples that are drawn, points that
/// are moved. To be on the safe side `Cuts` takes for distributed whatever a
/// model gives; where the models were given nothing that is, it stays whole.
void Entering::addSampled(std::vector<Batch> &Batches, const Buffers &Placed) {
  Cut Given(Index, Cut::ByArguments);
  std::set<const Expr *> Shared = expressionsOf(Batches);
  Shared.insert(Placed.Made.begin(), Placed.Made.end());
  Given.add(Shared);
  // What one function makes or reads at a time: what is made of it is no batch of
  // its own.
  constexpr unsigned Most = 16;
  for (unsigned I = 0; I < Most; ++I) {
    const std::vector<Batch> More =
        findBatches(Index, Given, Text, /*OnlyWhole=*/true);
    const auto IsNew = [&](const Batch &B) {
      return !Shared.count(B.E) && !(B.Points && Given.in(B.E));
    };
    const auto Next = llvm::find_if(More, IsNew);
    if (Next == More.end())
      return;
    std::set<const Expr *> Added;
    for (const Batch &B : More)
      if ((B.ReadIn == Next->ReadIn || B.In == Next->In) && IsNew(B) &&
          !isMadeOf(B, More, Text.Context)) {
        Batches.push_back(B);
        Added.insert(B.E);
      }
    Shared.insert(Added.begin(), Added.end());
    Given.add(Added);
  }
}

void Entering::addBatches() {
  std::vector<Batch> Batches = findBatches(Index, Cuts, Text);
  // They are no batches where a model reads them.
  const Buffers Placed = addBuffers(Batches);
  llvm::erase_if(Batches, [&](const Batch &B) {
    const ValueDecl *Root = rootOf(B.E);
    return Placed.Made.count(B.E) || (Root && Placed.Variables.count(Root));
  });
  const std::vector<Batch> All = Batches;
  Chosen Choices(Index, All);
  llvm::erase_if(Batches, [&](const Batch &B) {
    return !B.Points && (isMadeOf(B, All, Text.Context) || Choices.has(B));
  });
  // Points that are made of a batch are shared out with it.
  for (const bool Points : {false, true}) {
    std::vector<Batch> Now;
    llvm::copy_if(Batches, std::back_inserter(Now), [&](const Batch &B) {
      return B.Points == Points && !(Points && Cuts.in(B.E));
    });
    enter(Now);
  }
  const size_t Before = Batches.size();
  addSampled(Batches, Placed);
  enter(llvm::ArrayRef(Batches).drop_front(Before));
  std::vector<Batch> OfSteps;
  for (const auto &[B, R] : Entered)
    OfSteps.push_back(B);
  noteLoops(OfSteps);
  enter(findEvaluated(Index, Cuts, Batches, Text));
  addEdits();
}

/// At most this much of an expression is shown.
static std::string shortened(llvm::StringRef Text) {
  constexpr size_t Most = 40;
  const llvm::StringRef Shown =
      Text.take_until([](char C) { return C == '\n'; }).take_front(Most);
  return Shown.rtrim().str() + (Shown.size() < Text.size() ? " ..." : "");
}

namespace {
/// What a training shares out, as it is shown.
class SharedOut {
public:
  explicit SharedOut(SourceText &Text) : Text(Text) {}

  void add(SourceRange Range) {
    std::string Words = Text.text(Range);
    if (const auto InMacro = Text.rangeOrMacro(Range); InMacro && Words.empty())
      Words = Text.text(*InMacro).str();
    const std::string What = "'" + shortened(Words) + "'";
    if (!llvm::is_contained(All, What))
      All.push_back(What);
  }
  /// The batches that are made or read in what a loop runs.
  void addIn(const LoopText &In, llvm::ArrayRef<Batch> Batches) {
    // A lambda before the loop may read what the loop makes.
    for (const Batch &B : Batches)
      if (In.holds(B.ReadBy->getExprLoc(), Text.SM) ||
          In.holds(B.E->getExprLoc(), Text.SM))
        add(B.E->getSourceRange());
  }
  /// What models are given there, and a loader has shared out.
  void addLoaded(const LoopText &In, const Cut &Loaded) {
    for (const Expr *Input : In.Inputs)
      if (Loaded.in(Input))
        add(Input->getSourceRange());
  }
  bool empty() const { return All.empty(); }
  std::string list() const {
    constexpr size_t Most = 3;
    const size_t More = All.size() > Most ? All.size() - Most : 0;
    return llvm::join(llvm::ArrayRef(All).drop_back(More), ", ") +
           (More ? " and " + std::to_string(More) + " more" : "");
  }

private:
  SourceText &Text;
  std::vector<std::string> All;
};
} // namespace

/// Says of each training what is shared out in it; of one in which nothing is found,
/// that all processes do all of it.
void Entering::noteLoops(llvm::ArrayRef<Batch> Batches) {
  const auto IsWhole = [&](SourceLocation Loc, const char *What) {
    say("ACL0175", Loc,
        std::string("every process runs this training ") + What +
            " in full: no batch is seen that a model reads in it",
        "Nothing has to be done: the results are those of one device, and it "
        "takes as long. To share the work, give the model "
        "`accelerator.distribute(batch)`.");
  };
  const auto IsShared = [&](SourceLocation Loc, const char *What,
                            const SharedOut &Shared) {
    say("ACL0174", Loc,
        std::string("the processes share out this training ") + What +
            ", by the rows of " + Shared.list());
  };
  for (const FunctionDecl *Step : Index.GivenAway) {
    const SourceLocation Begin = Step->getBody()->getBeginLoc();
    SharedOut Shared(Text);
    Shared.addIn(LoopText(Step->getBody(), Index), Batches);
    if (!Text.mayEdit(Begin))
      continue;
    if (!Shared.empty())
      IsShared(Begin, "step", Shared);
    else if (!Index.readsLoaders()) // A loader's batch may come to it.
      IsWhole(Begin, "step");
  }
  const Cut Loaded(Index, Cut::ByArguments);
  for (const auto &[Loop, Facts] : Index.Loops) {
    if ((!Facts.Training && !Facts.AddsUp) ||
        !Text.mayEdit(Loop->getBeginLoc()))
      continue;
    SharedOut Shared(Text);
    const Expr *Loader = loaderOfLoop(Loop);
    const auto *Range = dyn_cast<CXXForRangeStmt>(Loop);
    const bool Placed =
        Loader && (!Range || isDistributedBy(
                                 Loader, Range->getLoopVariable()->getType()));
    if (Placed)
      Shared.add(Loader->getSourceRange());
    const LoopText In(Loop, Index);
    Shared.addIn(In, Batches);
    if (Shared.empty()) // auto batch = *it;
      Shared.addLoaded(In, Loaded);
    if (!Shared.empty())
      IsShared(Loop->getBeginLoc(), "loop", Shared);
    else if (!Facts.HasLoader || (Loader && !Placed))
      IsWhole(Loop->getBeginLoc(), "loop");
  }
}
