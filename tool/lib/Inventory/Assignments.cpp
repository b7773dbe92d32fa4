//===- Assignments.cpp - Where variables are set --------------------------===//

#include "Assignments.h"

#include "AstVisitor.h"
#include "TorchTypes.h"

#include "clang/AST/DeclCXX.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isTupleOfReferences(const Expr *E) {
  const FunctionDecl *F = calleeOf(plain(E));
  return F && F->getIdentifier() && isInStd(F) &&
         (F->getName() == "tie" || F->getName() == "forward_as_tuple");
}

namespace {
class SetBehind : public AstVisitor {
public:
  SetBehind(const ValueDecl *Variable, SourceLocation Place,
            const SourceManager &SM)
      : Variable(Variable), Place(Place), SM(SM) {}
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->getOperator() == OO_Equal &&
        !SM.isBeforeInTranslationUnit(E->getOperatorLoc(), Place))
      Found |= sets(plain(E->getArg(0)));
    return true;
  }
  bool Found = false;

private:
  bool sets(const Expr *To) const {
    if (isTupleOfReferences(To))
      return llvm::any_of(cast<CallExpr>(To)->arguments(),
                          [&](const Expr *Each) { return sets(plain(Each)); });
    const auto *Ref = dyn_cast<DeclRefExpr>(To);
    return Ref && Ref->getDecl() == Variable;
  }
  const ValueDecl *Variable;
  SourceLocation Place;
  const SourceManager &SM;
};
} // namespace

bool accel::migrate::isSetBehind(const Stmt *Body, const ValueDecl *Variable,
                                 SourceLocation Place,
                                 const SourceManager &SM) {
  SetBehind Finder(Variable, Place, SM);
  Finder.TraverseStmt(const_cast<Stmt *>(Body));
  return Finder.Found;
}

bool accel::migrate::isAssignable(const ValueDecl *V) {
  QualType Holder = V->getType();
  if (const auto *B = dyn_cast<BindingDecl>(V))
    Holder = B->getDecomposedDecl()->getType();
  return !Holder->isReferenceType() && !Holder.isConstQualified() &&
         !V->getType()->isReferenceType() && !V->getType().isConstQualified();
}
