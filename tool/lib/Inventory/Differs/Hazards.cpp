//===- Hazards.cpp - Threads, signals, other distribution -----------------===//

#include "Differs.h"
#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// Whether code trains, or reads what it trains with.
class TrainingFinder : public AstVisitor {
public:
  explicit TrainingFinder(const ProgramIndex &Index) : Index(Index) {}
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee(), *Body = nullptr;
    if (!F)
      return true;
    if (F->getIdentifier() && isTorch(F) &&
        (F->getName() == "backward" || F->getName() == "step"))
      Found = true;
    Found |= modelCallOf(E).has_value();
    if (Index.isOwn(F) && F->hasBody(Body) && Seen.insert(Body).second)
      TraverseStmt(Body->getBody());
    return !Found;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    const FunctionDecl *Body = nullptr;
    if (const auto *F = dyn_cast<FunctionDecl>(E->getDecl());
        F && Index.isOwn(F) && F->hasBody(Body) && Seen.insert(Body).second)
      TraverseStmt(Body->getBody());
    return !Found;
  }
  bool Found = false;

private:
  const ProgramIndex &Index;
  std::set<const FunctionDecl *> Seen;
};
} // namespace

/// A thread that only loads, prints or waits for something is the process's
/// own. One that trains would have to meet the others in an order of its own.
void Hazards::threadStarts(const Expr *E,
                              llvm::ArrayRef<const Expr *> Args) {
  TrainingFinder Trains(Index);
  for (const Expr *Arg : Args) {
    if (const FunctionDecl *Closure = closureOf(Arg);
        Closure && Closure->hasBody())
      Trains.TraverseStmt(Closure->getBody());
    Trains.TraverseStmt(const_cast<Expr *>(Arg));
  }
  if (Trains.Found)
    say("ACL0135", E->getExprLoc(),
           "the program trains in a thread of its own; the processes would "
           "have to meet in the same order in all of them",
           "Train in the thread that runs main.");
}

void Hazards::construct(const CXXConstructExpr *E) {
  const CXXRecordDecl *D = E->getConstructor()->getParent();
  if (D->getIdentifier() && isInStd(D) &&
      (D->getName() == "thread" || D->getName() == "jthread") &&
      E->getNumArgs() > 0 && !E->getConstructor()->isCopyOrMoveConstructor())
    threadStarts(E, {E->getArgs(), E->getNumArgs()});
}

void Hazards::call(const CallExpr *E, const FunctionDecl *F,
                   llvm::StringRef Name) {
  const SourceLocation Loc = E->getExprLoc();
  // A handler that sets a flag does so at another moment on each process.
  if ((Name == "signal" || Name == "sigaction") && Text.mayEdit(Loc) &&
      (F->isExternC() || isInStd(F)) && E->getNumArgs() >= 2) {
    if (const auto *Handler = dyn_cast<DeclRefExpr>(bare(E->getArg(1))))
      if (const auto *H = dyn_cast<FunctionDecl>(Handler->getDecl());
          H && Index.isOwn(H))
        say("ACL0221", Loc,
               "a signal is handled by '" + H->getNameAsString() +
                   "', which runs at another moment on each process",
               "Let the signal end the process; the launcher ends the others.");
    return;
  }
  if ((F->isExternC() || F->getDeclContext()->isTranslationUnit()) &&
      (Name == "fork" || Name.starts_with("MPI_") || Name.starts_with("nccl")))
    return say("ACL0105", Loc,
                  "the program is distributed already: it calls " + Name.str(),
                  "Take its own distribution out first.");
  if (!isTorch(F)) {
    if (Name == "async" && isInStd(F))
      threadStarts(E, {E->getArgs(), E->getNumArgs()});
    return;
  }
  const std::string Qualified = qualifiedName(F);
  if (Name == "data_parallel" || Name == "replicate")
    return say("ACL0105", Loc,
                  "the program is distributed already: it calls " + Qualified,
                  "Take its own distribution out first.");
}
