//===- Draws.cpp - Numbers of random devices that are kept ----------------===//

#include "Draws.h"

#include "Code/AstVisitor.h"
#include "Code/ProgramIndex.h"
#include "Code/Quiet.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {
class DrawFinder : public AstAncestorVisitor {
public:
  /// `OfField`: what is traversed is what a field begins with.
  DrawFinder(const ProgramIndex &Index, std::set<const CallExpr *> &Found,
             bool OfField)
      : Index(Index), Found(Found), OfField(OfField) {}

  bool shouldVisitTemplateInstantiations() const override { return true; }
  bool TraverseLambdaExpr(LambdaExpr *L) override {
    return Index.loadsSamples(L) || AstAncestorVisitor::TraverseLambdaExpr(L);
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    const auto *M = dyn_cast_or_null<CXXMethodDecl>(E->getDirectCallee());
    if (E->getOperator() == OO_Call && M && isRandomDevice(M->getParent()) &&
        isKept())
      Found.insert(E);
    return true;
  }

private:
  bool isKept() const {
    for (const Stmt *S : llvm::reverse(llvm::ArrayRef(Path).drop_back())) {
      const auto *Binary = dyn_cast<BinaryOperator>(S);
      if (Binary && Binary->isAssignmentOp())
        return true;
      if (isa<CastExpr, ParenExpr, MaterializeTemporaryExpr, ExprWithCleanups>(S) ||
          (Binary && S != Path.back()) || (OfField && isa<InitListExpr>(S)))
        continue;
      if (const auto *Made = dyn_cast<CXXConstructExpr>(S))
        return Index.isOwn(Made->getConstructor());
      const FunctionDecl *F = nullptr;
      if (const auto *Call = dyn_cast<CallExpr>(S))
        F = Call->getDirectCallee();
      // A name for a file.
      if (F && (F->isExternC() || isInStd(F)) &&
          (nameOf(F) == "snprintf" || nameOf(F) == "sprintf"))
        return true;
      return F && (Index.isOwn(F) ||
                   (isInStd(F) && (nameOf(F).starts_with("make_") ||
                                   nameOf(F).starts_with("emplace"))));
    }
    return OfField;
  }
  const ProgramIndex &Index;
  std::set<const CallExpr *> &Found;
  const bool OfField;
};
} // namespace

std::set<const CallExpr *>
accel::migrate::keptDraws(const ProgramIndex &Index) {
  std::set<const CallExpr *> Found;
  for (const FunctionDecl *F : Index.Functions)
    if (!Index.loadsSamples(F) && !Index.BeforeMain.count(F))
      DrawFinder(Index, Found, /*OfField=*/false).TraverseStmt(F->getBody());
  // Of a data set's: each process has its own samples in any case.
  for (const FieldDecl *F : Index.Fields)
    if (F->hasInClassInitializer() && F->getType()->isArithmeticType() &&
        !isOrDerives(dyn_cast<CXXRecordDecl>(F->getParent()),
                     "torch::data::datasets::BatchDataset"))
      DrawFinder(Index, Found, /*OfField=*/true)
          .TraverseStmt(F->getInClassInitializer());
  return Found;
}
