//===- AddedUp.cpp - Losses that are added up before one backward ---------===//

#include "ProgramIndex.h"

#include "AstVisitor.h"
#include "TorchTypes.h"

#include "clang/Basic/SourceManager.h"

using namespace accel::migrate;
using namespace clang;

/// Adds the tensors, and what holds them, that code reads.
static void addRead(const Stmt *S, std::set<const ValueDecl *> &Found) {
  eachIn<Expr>(S, [&](const Expr *E) {
    if (const ValueDecl *V = referredTo(E);
        isa_and_nonnull<VarDecl, FieldDecl>(V) && holdsTensors(E->getType()))
      Found.insert(V);
  });
}

namespace {
/// What variables are given in one function: `x = a`, `x += a`, `x.push_back(a)`.
class Given : public AstVisitor {
public:
  struct Value {
    const ValueDecl *To;
    const Expr *E;
  };
  bool VisitVarDecl(VarDecl *V) override {
    if (V->getInit())
      All.push_back({V, V->getInit()});
    return true;
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->isAssignmentOp())
      add(E->getArg(0), E->getArg(1));
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const CXXMethodDecl *M = E->getMethodDecl();
    // losses.push_back(loss), total.add_(loss)
    const bool Keeps = !stdNameOf(M).empty() && !M->isConst();
    const bool Adds = isTensor(E->getObjectType()) && namesInPlace(nameOf(M));
    if (E->getNumArgs() > 0 && (Keeps || Adds))
      add(E->getImplicitObjectArgument(), E->getArg(0));
    return true;
  }
  std::vector<Value> All;

private:
  void add(const Expr *To, const Expr *E) {
    if (const ValueDecl *V = placeOf(To))
      All.push_back({V, E});
  }
};
} // namespace

/// `for (batch : loader) total = total + loss(batch); total.backward();`
void ProgramIndex::markAddingUp() {
  const SourceManager &SM = Context.getSourceManager();
  for (const BackwardCall &B : Backwards) {
    Given Values;
    bool Looked = false;
    for (auto &[Loop, Facts] : Loops) {
      if (Facts.Writer != B.Writer || !Facts.HasLoader || Facts.Training ||
          !SM.isBeforeInTranslationUnit(Loop->getEndLoc(),
                                        B.Call->getExprLoc()))
        continue;
      if (!std::exchange(Looked, true))
        Values.TraverseStmt(B.Writer->getBody());
      // From the loss back to what it is made of.
      std::set<const ValueDecl *> Read;
      addRead(B.Call, Read);
      for (size_t Before = 0; Before != Read.size();) {
        Before = Read.size();
        for (const Given::Value &Value : Values.All) {
          if (!Read.count(Value.To))
            continue;
          // What is declared before the loop and given something in it.
          const SourceLocation At = Value.E->getExprLoc();
          Facts.AddsUp |= isWithin(At, Loop, SM) &&
                          !isWithin(Value.To->getLocation(), Loop, SM) &&
                          holdsTensors(Value.E->getType());
          if (!isWithin(At, Loop, SM))
            addRead(Value.E, Read);
        }
      }
    }
  }
}
