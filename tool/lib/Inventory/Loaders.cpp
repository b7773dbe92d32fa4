//===- Loaders.cpp - What loaders give, and to whom -----------------------===//

#include "AstVisitor.h"
#include "ProgramIndex.h"

#include "TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

namespace {
/// Counts what is done with a loader.
class LoaderUses : public AstVisitor {
public:
  explicit LoaderUses(const VarDecl *V) : V(V) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    All += E->getDecl() == V;
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const CXXMethodDecl *M = E->getMethodDecl();
    const Expr *Object = E->getImplicitObjectArgument();
    Iterators += M && M->getIdentifier() &&
                 (M->getName() == "begin" || M->getName() == "end") &&
                 loaderOf(Object->getType()) && variableOf(Object) == V;
    return true;
  }
  bool VisitForStmt(ForStmt *S) override {
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

/// Whether a loader's data set stacks its samples along dimension 0: the last
/// of its transforms is Stack<>.
static bool isStacked(const CXXRecordDecl *DataSet) {
  const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(DataSet);
  if (!D || !D->getIdentifier() || !isTorch(D))
    return false;
  const TemplateArgumentList &Args = D->getTemplateArgs();
  if (D->getName() == "SharedBatchDataset" && Args.size() > 0)
    return isStacked(recordOf(Args[0].getAsType()));
  if (D->getName() != "MapDataset" || Args.size() < 2)
    return false;
  const CXXRecordDecl *Transform = recordOf(Args[1].getAsType());
  return Transform && Transform->getIdentifier() && isTorch(Transform) &&
         Transform->getName() == "Stack";
}

/// The data set's class in the type of a loader.
static const CXXRecordDecl *dataSetOf(QualType Loader) {
  const auto *D =
      dyn_cast_or_null<ClassTemplateSpecializationDecl>(loaderOf(Loader));
  return D && D->getTemplateArgs().size() > 0
             ? recordOf(D->getTemplateArgs()[0].getAsType())
             : nullptr;
}

/// torch::data::Example<Tensor, …>.
static bool isExample(QualType T) {
  const auto *D =
      dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(T));
  return D && D->getName() == "Example" && isTorch(D) &&
         isTensor(D->getTemplateArgs()[0].getAsType());
}

bool accel::migrate::givesRows(const Stmt *Loop) {
  const QualType Loader = loaderOfLoop(Loop)->getType();
  const auto *Range = dyn_cast<CXXForRangeStmt>(Loop);
  return isStacked(dataSetOf(Loader)) &&
         (!Range || isExample(Range->getLoopVariable()->getType()));
}

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
