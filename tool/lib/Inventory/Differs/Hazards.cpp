//===- Hazards.cpp - Threads, signals, other distribution -----------------===//

#include "Differs.h"
#include "Awaited.h"
#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"
#include "Threads.h"

using namespace accel::migrate;
using namespace clang;

/// Lambdas, std::function, what std::bind returns, functors.
static bool hasCallOperator(QualType T) {
  const CXXRecordDecl *D = T->getAsCXXRecordDecl();
  D = D ? D->getDefinition() : nullptr;
  return D && !D->lookup(D->getASTContext().DeclarationNames
                             .getCXXOperatorName(OO_Call))
                   .empty();
}

namespace {
/// Whether code trains, calls what is trained, or saves it.
class TrainingFinder : public AstVisitor {
public:
  explicit TrainingFinder(const ProgramIndex &Index) : Index(Index) {}
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F)
      return true;
    if (isTorch(F) && (nameOf(F) == "backward" || nameOf(F) == "step"))
      Trains = true;
    Saves |= isTorch(F) && nameOf(F) == "save";
    Calls |= modelCallOf(E).has_value();
    enter(F);
    return !Trains;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const auto *F = dyn_cast<FunctionDecl>(E->getDecl()))
      enter(F);
    // A task, a lambda: what the variable was made of.
    if (const auto *V = dyn_cast<VarDecl>(E->getDecl());
        V && V->hasLocalStorage() && hasCallOperator(V->getType()) &&
        V->hasInit() && Seen.insert(V).second)
      TraverseStmt(const_cast<Expr *>(V->getInit()));
    held(E->getDecl());
    return !Trains;
  }
  bool VisitMemberExpr(MemberExpr *E) override {
    held(E->getMemberDecl());
    return !Trains;
  }
  bool any() const { return Trains || Calls || Saves; }
  bool Trains = false, Calls = false, Saves = false;

private:
  void enter(const FunctionDecl *F) { look(Index.ownBodiesOf(F)); }
  /// What a std::function holds may be run.
  void held(const ValueDecl *V) { look(Index.callablesIn(V)); }
  void look(llvm::ArrayRef<const FunctionDecl *> Bodies) {
    for (const FunctionDecl *Body : Bodies)
      if (Seen.insert(Body).second)
        TraverseStmt(Body->getBody());
  }

  const ProgramIndex &Index;
  std::set<const Decl *> Seen;
};
} // namespace

/// A thread that only loads, prints or waits for something is the process's
/// own. One that trains would have to meet the others in an order of its own.
void Hazards::threadStarts(const Expr *E, llvm::ArrayRef<const Expr *> Args) {
  for (const Expr *Arg : Args) {
    if (const FunctionDecl *Closure = closureOf(Arg);
        Closure && Closure->hasBody() &&
        threadRuns(E->getExprLoc(), Closure->getBody()))
      return;
    if (threadRuns(E->getExprLoc(), Arg))
      return;
  }
}

/// A task that trains, and is waited for at once, needs no thread.
bool Hazards::defer(const CallExpr *E, const FunctionDecl *F) {
  if (!isInStd(F) || F->getName() != "async" || E->getNumArgs() == 0 ||
      !isAwaitedAtOnce(Path, Function, Index))
    return false;
  TrainingFinder Finder(Index);
  for (const Expr *Arg : E->arguments()) {
    const FunctionDecl *Closure = closureOf(Arg);
    Finder.TraverseStmt(Closure && Closure->hasBody()
                            ? Closure->getBody()
                            : const_cast<Expr *>(Arg));
  }
  if (!Finder.any())
    return true;
  const Expr *First = E->getArg(0);
  const auto *Policy = First->getType()->getAs<EnumType>();
  edit(Policy ? EditKind::LaunchPolicy : EditKind::LaunchedTask, First->getSourceRange());
  return true;
}

bool Hazards::threadRuns(SourceLocation Loc, const Stmt *S) {
  TrainingFinder Finder(Index);
  Finder.TraverseStmt(const_cast<Stmt *>(S));
  if (Finder.any()) {
    const llvm::StringRef Does = Finder.Trains  ? "trains"
                                 : Finder.Calls ? "calls a model"
                                                : "saves";
    say("ACL0135", Loc,
        "the program " + Does.str() +
            " in a thread of its own; the processes would have to meet in the "
            "same order in all of them",
        "Do it in the thread that runs main.");
  }
  return Finder.any();
}

void Hazards::givenToPool(const Expr *E, const FunctionDecl *F,
                          llvm::ArrayRef<const Expr *> Args) {
  for (const Expr *Arg : Args)
    if (isGivenToPool(Arg, F))
      threadStarts(E, Arg);
}

void Hazards::region(const Stmt *S) {
  if (isOpenMPRegion(S, Context.getSourceManager()))
    threadRuns(S->getBeginLoc(), S);
}

void Hazards::assigned(const Expr *To, const Expr *Made) {
  // action.sa_handler = f;
  if (!Path.empty())
    if (const FunctionDecl *Handler = signalHandler(Path.back(), Index))
      handles(To->getExprLoc(), Handler);
}

/// What it sets differs from then on (Differing.cpp). More than that it cannot
/// do on all processes at the same point of the training.
void Hazards::handles(SourceLocation Loc, const FunctionDecl *Handler) {
  if (!Text.mayEdit(Loc))
    return;
  TrainingFinder Finder(Index);
  Finder.TraverseStmt(Handler->getBody());
  if (Finder.any())
    say("ACL0127", Loc,
        "a signal is handled by code that trains, or saves a model, and runs at "
        "another moment on each process",
        "Set a variable in the handler, and look at it in the training loop.");
}

void Hazards::construct(const CXXConstructExpr *E) {
  const CXXConstructorDecl *C = E->getConstructor();
  if (C->isCopyOrMoveConstructor())
    return;
  if (isThread(C->getParent()) && E->getNumArgs() > 0)
    return threadStarts(E, {E->getArgs(), E->getNumArgs()});
  givenToPool(E, C, {E->getArgs(), E->getNumArgs()});
}

void Hazards::namedCall(const CallExpr *E, const FunctionDecl *F,
                        llvm::StringRef Name) {
  const SourceLocation Loc = E->getExprLoc();
  if (const FunctionDecl *Handler = signalHandler(E, Index))
    return handles(Loc, Handler);
  if ((F->isExternC() || F->getDeclContext()->isTranslationUnit()) &&
      (Name == "fork" || Name.starts_with("MPI_") || Name.starts_with("nccl")))
    return say("ACL0105", Loc,
                  "the program is distributed already: it calls " + Name.str(),
                  "Take its own distribution out first.");
  if (runsInThreads(E, F) && !defer(E, F))
    return threadStarts(E, {E->getArgs(), E->getNumArgs()});
  givenToPool(E, F, {E->getArgs(), E->getNumArgs()});
  if (!isTorch(F))
    return;
  const std::string Qualified = qualifiedName(F);
  if (Name == "data_parallel" || Name == "replicate")
    return say("ACL0105", Loc,
                  "the program is distributed already: it calls " + Qualified,
                  "Take its own distribution out first.");
}
