//===- LookedInto.cpp - Loaders that no loop goes over --------------------===//

#include "ProgramIndex.h"

#include "TorchTypes.h"

#include "clang/AST/RecursiveASTVisitor.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// Counts what is done with a loader.
class LoaderUses : public RecursiveASTVisitor<LoaderUses> {
public:
  explicit LoaderUses(const VarDecl *V) : V(V) {}
  bool shouldVisitLambdaBody() const { return true; }
  bool VisitDeclRefExpr(DeclRefExpr *E) {
    All += E->getDecl() == V;
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) {
    const CXXMethodDecl *M = E->getMethodDecl();
    const Expr *Object = E->getImplicitObjectArgument();
    Iterators += M && M->getIdentifier() &&
                 (M->getName() == "begin" || M->getName() == "end") &&
                 loaderOf(Object->getType()) && variableOf(Object) == V;
    return true;
  }
  bool VisitForStmt(ForStmt *S) {
    const Expr *Loader = loaderOfLoop(S);
    Loops |= Loader && variableOf(Loader) == V;
    return true;
  }
  unsigned All = 0, Iterators = 0;
  bool Loops = false;

private:
  const VarDecl *V;
};
} // namespace

bool accel::migrate::isOnlyLookedInto(const ValueDecl *D) {
  const auto *V = dyn_cast_or_null<VarDecl>(D);
  if (!V || !V->isLocalVarDecl() || V->isStaticLocal())
    return false;
  const auto *F = dyn_cast_or_null<FunctionDecl>(V->getParentFunctionOrMethod());
  if (!F || !F->hasBody())
    return false;
  LoaderUses Uses(V);
  Uses.TraverseStmt(F->getBody());
  return Uses.Iterators > 0 && Uses.Iterators == Uses.All && !Uses.Loops;
}
