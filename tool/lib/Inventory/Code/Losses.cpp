//===- Losses.cpp - What backward is called on ----------------------------===//

#include "Losses.h"

#include "AstVisitor.h"
#include "ModelCalls.h"
#include "ProgramIndex.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// Whether a variable, or what it refers to, is changed: assigned to, or given another
/// element.
class Changed : public AstVisitor {
public:
  explicit Changed(const ValueDecl *V) : V(V) {}
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    Found |= E->isAssignmentOp() && rootOf(E->getArg(0)) == V;
    return !Found;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const CXXMethodDecl *M = E->getMethodDecl();
    Found |= M && !M->isConst() && isInStd(M) && M->getIdentifier() &&
             (M->getName().contains("push") || M->getName().contains("emplace") ||
              M->getName() == "insert") &&
             rootOf(E->getImplicitObjectArgument()) == V;
    return !Found;
  }
  bool Found = false;

private:
  const ValueDecl *V;
};
} // namespace

const ValueDecl *accel::migrate::lossOf(const Expr *E) {
  E = plain(E);
  while (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
    const bool IsElement = O->getOperator() == OO_Subscript ||
                           O->getOperator() == OO_Arrow ||
                           (O->getOperator() == OO_Star && O->getNumArgs() == 1);
    if (!IsElement || isTensor(O->getArg(0)->getType()))
      return nullptr;
    E = plain(O->getArg(0));
  }
  const auto *Ref = dyn_cast<DeclRefExpr>(E);
  return Ref ? Ref->getDecl() : nullptr;
}

bool accel::migrate::isMadeBefore(const ValueDecl *V, const Stmt *Loop,
                                  const SourceManager &SM) {
  if (const auto *Range = dyn_cast<CXXForRangeStmt>(Loop);
      Range && Range->getLoopVariable() == V)
    V = rootOf(Range->getRangeInit());
  if (!V || !isa<VarDecl>(V) || isWithin(V->getLocation(), Loop, SM))
    return false;
  Changed Finder(V);
  Finder.TraverseStmt(const_cast<Stmt *>(Loop));
  return !Finder.Found;
}
