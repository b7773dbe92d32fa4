//===- Exceptions.cpp - What becomes of a process that fails --------------===//
//
// A process whose exception is caught and that then goes on with the training
// has left the others behind in theirs. One that leaves the program does no
// harm: the others see it go, and stop.
//
//===----------------------------------------------------------------------===//

#include "AstVisitor.h"
#include "FactFinder.h"
#include "Quiet.h"
#include "TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

namespace {

/// How a handler goes on.
struct Ways {
  bool Falls = true; ///< Behind the try statement.
  bool Returns = false, Breaks = false, Continues = false;
};

/// Adds the ways on from `S`; whether it comes to its end.
bool waysFrom(const Stmt *S, Ways &W, bool InLoop, bool Main) {
  if (!S)
    return true;
  if (const auto *Block = dyn_cast<CompoundStmt>(S)) {
    for (const Stmt *Child : Block->body())
      if (!waysFrom(Child, W, InLoop, Main))
        return false;
    return true;
  }
  if (const auto *If = dyn_cast<IfStmt>(S)) {
    const bool Then = waysFrom(If->getThen(), W, InLoop, Main);
    const bool Else = waysFrom(If->getElse(), W, InLoop, Main);
    return Then || Else;
  }
  if (isa<ForStmt, WhileStmt, DoStmt, CXXForRangeStmt, SwitchStmt>(S)) {
    for (const Stmt *Child : S->children())
      waysFrom(Child, W, /*InLoop=*/true, Main);
    return true;
  }
  if (isa<ReturnStmt>(S)) {
    W.Returns |= !Main; // From main: the process ends.
    return false;
  }
  if (isa<BreakStmt>(S) || isa<ContinueStmt>(S)) {
    if (!InLoop)
      (isa<BreakStmt>(S) ? W.Breaks : W.Continues) = true;
    return false;
  }
  if (const auto *E = dyn_cast<Expr>(S)) {
    if (isa<CXXThrowExpr>(plain(E)))
      return false;
    const FunctionDecl *F = calleeOf(plain(E));
    return !F || !F->isNoReturn();
  }
  if (isa<GotoStmt, IndirectGotoStmt>(S)) {
    W.Continues = true; // Wherever that is.
    return false;
  }
  return true;
}

/// From a function's body to something in it.
class PathFinder : public AstPathVisitor {
public:
  explicit PathFinder(const FunctionDecl *Callee)
      : Callee(Callee->getCanonicalDecl()) {}
  bool TraverseStmt(Stmt *S) override {
    if (!S)
      return true;
    Path.push_back(S);
    const bool Result = AstPathVisitor::TraverseStmt(S);
    Path.pop_back();
    return Result;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override { return note(E->getDecl()); }
  bool VisitMemberExpr(MemberExpr *E) override {
    return note(E->getMemberDecl());
  }
  std::vector<std::vector<const Stmt *>> Found;

private:
  bool note(const ValueDecl *D) {
    if (D->getCanonicalDecl() == Callee)
      Found.push_back(Path);
    return true;
  }
  const ValueDecl *Callee;
  std::vector<const Stmt *> Path;
};

/// Whether a process that goes on behind something only leaves the program.
class LeavesProgram {
public:
  LeavesProgram(const ProgramIndex &Index) : Index(Index), Silent(Index) {}

  /// Behind the last statement of `Path`, in `F`.
  bool behind(llvm::ArrayRef<const Stmt *> Path, const FunctionDecl *F,
              bool LeaveLoop) {
    for (size_t I = Path.size(); I-- > 1;) {
      const Stmt *Inner = Path[I], *Around = Path[I - 1];
      if (isa<LambdaExpr>(Around))
        return false;
      if (isa<ForStmt, WhileStmt, DoStmt, CXXForRangeStmt>(Around)) {
        if (!LeaveLoop)
          return false; // The next pass.
        LeaveLoop = false;
        continue;
      }
      if (isa<SwitchStmt>(Around) && LeaveLoop) {
        LeaveLoop = false;
        continue;
      }
      if (LeaveLoop)
        continue;
      // The handlers of an outer try are for other exceptions.
      const auto *Block = dyn_cast<CompoundStmt>(Around);
      if (!Block) {
        if (!isa<IfStmt, CXXTryStmt, CXXCatchStmt, Expr, DeclStmt, ReturnStmt,
                 SwitchCase>(Around))
          return false;
        continue;
      }
      bool Seen = false, Ends = false;
      for (const Stmt *S : Block->body()) {
        if (Seen) {
          if (!Silent.is(S))
            return false;
          if (isa<ReturnStmt>(S)) {
            Ends = true;
            break;
          }
        }
        Seen |= S == Inner;
      }
      if (Ends)
        return returned(F);
    }
    return returned(F);
  }

  /// Behind each call of `F`.
  bool returned(const FunctionDecl *F) {
    if (F->isMain())
      return true;
    const auto *M = dyn_cast<CXXMethodDecl>(F);
    if ((M && M->isVirtual()) || ++Depth > 16)
      return false;
    bool Called = false;
    for (const FunctionDecl *Caller : Index.Functions) {
      PathFinder Finder(F);
      Finder.TraverseStmt(Caller->getBody());
      for (const std::vector<const Stmt *> &Path : Finder.Found) {
        Called = true;
        if (!behind(Path, Caller, /*LeaveLoop=*/false))
          return false;
      }
    }
    --Depth;
    return Called;
  }

private:
  const ProgramIndex &Index;
  Quiet Silent;
  unsigned Depth = 0;
};

} // namespace

/// Whether a process that comes to a handler goes on with the program.
/// `Path` leads from the function's body to the try statement.
static bool goesOn(const CXXCatchStmt *Handler,
                   llvm::ArrayRef<const Stmt *> Path,
                   const FunctionDecl *Function, bool InLambda,
                   const ProgramIndex &Index) {
  Ways W;
  W.Falls = waysFrom(Handler->getHandlerBlock(), W, /*InLoop=*/false,
                     Function->isMain() && !InLambda);
  if (W.Continues || (InLambda && (W.Falls || W.Returns || W.Breaks)))
    return true;
  LeavesProgram Leaves(Index);
  return (W.Falls && !Leaves.behind(Path, Function, /*LeaveLoop=*/false)) ||
         (W.Breaks && !Leaves.behind(Path, Function, /*LeaveLoop=*/true)) ||
         (W.Returns && !Leaves.returned(Function));
}

void FactFinder::tryBlock(const CXXTryStmt *S) {
  // What stands in a loop over batches, and what such a loop calls, is a part
  // of the step.
  bool Concerns = Index.holdsBatches(S->getTryBlock());
  if (!Concerns && !Quiet(Index).is(S->getTryBlock())) {
    Concerns = Index.calledFromBatches(Function);
    for (const Stmt *Around : Path)
      Concerns |= Index.Loops.count(Around) != 0;
  }
  if (!Concerns)
    return;
  for (unsigned I = 0; I < S->getNumHandlers(); ++I)
    if (goesOn(S->getHandler(I), Path, Function, !Lambdas.empty(), Index))
      refuse("ACL0134", S->getHandler(I)->getBeginLoc(),
             "an exception in the training is caught here and the program goes "
             "on, while the other processes wait for this one",
             "Let the exception end the program: `throw;`, or `return 1;` in "
             "main.");
}

bool FactFinder::swallowed() const {
  for (size_t I = 0; I + 1 < Path.size(); ++I) {
    const auto *Try = dyn_cast<CXXTryStmt>(Path[I]);
    if (!Try || Path[I + 1] != Try->getTryBlock())
      continue;
    for (unsigned H = 0; H < Try->getNumHandlers(); ++H)
      if (goesOn(Try->getHandler(H), llvm::ArrayRef(Path).take_front(I + 1),
                 Function, !Lambdas.empty(), Index))
        return true;
  }
  return false;
}
