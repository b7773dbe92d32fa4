//===- AddedUp.cpp - Losses that are added up before one backward ---------===//

#include "ProgramIndex.h"

#include "AstVisitor.h"
#include "TorchTypes.h"

#include "clang/Basic/SourceManager.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// Tensors, and what holds them, that code reads.
class TensorsRead : public AstVisitor {
public:
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    return read(E->getDecl(), E->getType());
  }
  bool VisitMemberExpr(MemberExpr *E) override {
    return read(E->getMemberDecl(), E->getType());
  }
  std::set<const ValueDecl *> Found;

private:
  bool read(const ValueDecl *V, QualType T) {
    if (isa<VarDecl, FieldDecl>(V) && holdsTensors(T))
      Found.insert(V);
    return true;
  }
};

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
    if (!M || !M->getIdentifier() || E->getNumArgs() == 0)
      return true;
    // losses.push_back(loss), total.add_(loss)
    const bool Keeps = isInStd(M) && !M->isConst();
    const bool Adds =
        isTensor(E->getObjectType()) && namesInPlace(M->getName());
    if (Keeps || Adds)
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
      TensorsRead Reads;
      Reads.TraverseStmt(const_cast<CallExpr *>(B.Call));
      for (size_t Before = 0; Before != Reads.Found.size();) {
        Before = Reads.Found.size();
        for (const Given::Value &Value : Values.All) {
          if (!Reads.Found.count(Value.To))
            continue;
          // What is declared before the loop and given something in it.
          const SourceLocation At = Value.E->getExprLoc();
          Facts.AddsUp |= isWithin(At, Loop, SM) &&
                          !isWithin(Value.To->getLocation(), Loop, SM) &&
                          holdsTensors(Value.E->getType());
          if (!isWithin(At, Loop, SM))
            Reads.TraverseStmt(const_cast<Expr *>(Value.E));
        }
      }
    }
  }
}
