//===- Agreement.cpp - Where processes come apart -------------------------===//

#include "Differing.h"

using namespace accel::migrate;
using namespace clang;

/// Whether `S` can be left before its end.
static bool leaps(const Stmt *S, bool InLoop) {
  if (!S || isa<LambdaExpr>(S))
    return false;
  if (isa<ReturnStmt, GotoStmt, IndirectGotoStmt>(S) ||
      (!InLoop && isa<BreakStmt, ContinueStmt>(S)))
    return true;
  if (const auto *Call = dyn_cast<CallExpr>(S))
    if (const FunctionDecl *F = Call->getDirectCallee(); F && F->isNoReturn())
      return true;
  InLoop |= isa<ForStmt, WhileStmt, DoStmt, CXXForRangeStmt>(S);
  for (const Stmt *Child : S->children())
    if (leaps(Child, InLoop))
      return true;
  return false;
}

bool Differing::mustAgree(const Expr *Condition, const Stmt *Controls,
                          const FunctionDecl *In) const {
  if (!Condition || !in(Condition))
    return false;
  return !Silent.is(Controls) ||
         (In && leaps(Controls, false) && !Silent.is(In->getBody()));
}

bool Differing::isReachedByAll(llvm::ArrayRef<const Stmt *> Path,
                               const FunctionDecl *In) const {
  return llvm::none_of(Path, [&](const Stmt *S) {
    const Expr *Condition = nullptr;
    if (const auto *If = dyn_cast<IfStmt>(S))
      Condition = If->getCond();
    else if (const auto *While = dyn_cast<WhileStmt>(S))
      Condition = While->getCond();
    else if (const auto *For = dyn_cast<ForStmt>(S))
      Condition = For->getCond();
    else if (const auto *Do = dyn_cast<DoStmt>(S))
      Condition = Do->getCond();
    else if (const auto *Switch = dyn_cast<SwitchStmt>(S))
      Condition = Switch->getCond();
    else if (const auto *Choice = dyn_cast<ConditionalOperator>(S))
      Condition = Choice->getCond();
    else if (const auto *B = dyn_cast<BinaryOperator>(S); B && B->isLogicalOp())
      Condition = B->getLHS();
    return Condition && in(Condition) && !mustAgree(Condition, S, In);
  });
}
