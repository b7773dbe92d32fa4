//===- SampleState.cpp - Data sets that change with each sample -----------===//

#include "SampleState.h"

#include "Code/AstVisitor.h"
#include "Code/ProgramIndex.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

namespace {

class ChangeFinder : public AstVisitor {
public:
  const Expr *Found = nullptr;

  // x.mul_(0.9), visits.index_put_({i}, 1)
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const CXXMethodDecl *M = E->getMethodDecl();
    if (M && M->getIdentifier() && isTorch(M) && namesInPlace(M->getName()) &&
        isTensor(E->getObjectType()) && isKept(E->getImplicitObjectArgument()))
      Found = E;
    return !Found;
  }
  // rows[i] = x, rows += 1; another tensor in a field is none of these.
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->isAssignmentOp() && isTensor(E->getArg(0)->getType()) &&
        isKept(E->getArg(0))) {
      const auto *To =
          dyn_cast<CXXOperatorCallExpr>(E->getArg(0)->IgnoreImplicit());
      if (E->getOperator() != OO_Equal ||
          (To && isTensor(To->getArg(0)->getType())))
        Found = E;
    }
    return !Found;
  }
  // ++calls, sum += x, and numbers[i] = x by a pointer or a reference.
  bool VisitBinaryOperator(BinaryOperator *E) override {
    if (E->isAssignmentOp() && E->getType()->isArithmeticType() &&
        (E->isCompoundAssignmentOp() ? isKept(E->getLHS())
                                     : isByAnotherName(E->getLHS())))
      Found = E;
    return !Found;
  }
  bool VisitUnaryOperator(UnaryOperator *E) override {
    if (E->isIncrementDecrementOp() && E->getType()->isArithmeticType() &&
        isKept(E->getSubExpr()))
      Found = E;
    return !Found;
  }

private:
  /// The variable or field that `E` is a part of, through views and pointers.
  static const ValueDecl *ownerOf(const Expr *E) {
    constexpr unsigned Most = 32;
    for (unsigned I = 0; E && I < Most; ++I) {
      E = E->IgnoreUnlessSpelledInSource();
      if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
        return Ref->getDecl();
      if (const auto *M = dyn_cast<MemberExpr>(E)) {
        const Expr *Base = M->getBase()->IgnoreUnlessSpelledInSource();
        if (isa<CXXThisExpr>(Base))
          return M->getMemberDecl();
        E = Base;
      } else if (const auto *A = dyn_cast<ArraySubscriptExpr>(E)) {
        E = A->getBase();
      } else if (const auto *U = dyn_cast<UnaryOperator>(E)) {
        E = U->getSubExpr();
      } else if (const auto *O = dyn_cast<BinaryOperator>(E)) {
        E = O->getLHS(); // p + i
      } else if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
        if (isCopy(Member->getMethodDecl()))
          return nullptr;
        E = Member->getImplicitObjectArgument();
      } else if (const auto *Call = dyn_cast<CallExpr>(E)) {
        const FunctionDecl *F = Call->getDirectCallee();
        const bool IsBlob = F && F->getIdentifier() && isTorch(F) &&
                            F->getName() == "from_blob";
        if (Call->getNumArgs() == 0 ||
            !(isa<CXXOperatorCallExpr>(Call) ? givesPlace(Call) : IsBlob))
          return nullptr;
        E = Call->getArg(0);
      } else {
        return nullptr;
      }
    }
    return nullptr;
  }
  static bool givesPlace(const CallExpr *Call) {
    const auto *O = cast<CXXOperatorCallExpr>(Call);
    return O->getOperator() == OO_Subscript || O->getOperator() == OO_Arrow ||
           (O->getOperator() == OO_Star && O->getNumArgs() == 1);
  }
  /// A method of a tensor whose result has memory of its own.
  static bool isCopy(const CXXMethodDecl *M) {
    static const llvm::StringSet<> Views = {
        "detach", "view",      "reshape", "flatten", "squeeze",  "unsqueeze",
        "select", "slice",     "narrow",  "t",       "transpose", "permute",
        "data",   "contiguous", "expand"};
    if (!M || !isTensor(M->getASTContext().getRecordType(M->getParent())))
      return false;
    return !M->getIdentifier() ||
           !(Views.count(M->getName()) || namesInPlace(M->getName()) ||
             givesMemory(M));
  }
  static bool isField(const ValueDecl *D) {
    const auto *V = dyn_cast_or_null<VarDecl>(D);
    return isa_and_nonnull<FieldDecl>(D) || (V && V->hasGlobalStorage());
  }
  /// Another name of what a field has: a tensor, a pointer, a reference.
  static const ValueDecl *namedBy(const VarDecl *V) {
    const QualType T = V->getType();
    const bool Shares = isTensor(T) || T->isPointerType() || T->isReferenceType();
    return Shares && V->isLocalVarDecl() && V->getInit() ? ownerOf(V->getInit())
                                                         : nullptr;
  }
  static bool isKept(const Expr *E) {
    const ValueDecl *D = ownerOf(E);
    constexpr unsigned Most = 4;
    for (unsigned I = 0; D && I < Most; ++I) {
      if (isField(D))
        return true;
      const auto *V = dyn_cast<VarDecl>(D);
      D = V ? namedBy(V) : nullptr;
    }
    return false;
  }
  static bool isByAnotherName(const Expr *E) {
    return !isField(ownerOf(E)) && isKept(E);
  }
};

} // namespace

/// Of a stateful data set one process reads all batches, and deals them out.
static bool isDealt(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  return M && isOrDerives(M->getParent(), "torch::data::datasets::StatefulDataset");
}

const Expr *accel::migrate::changeBySamples(const ProgramIndex &Index) {
  ChangeFinder Finder;
  for (const FunctionDecl *F : Index.Functions)
    if (Index.loadsSamples(F) && !Finder.Found && !isDealt(F) &&
        !isa<CXXConstructorDecl>(F))
      Finder.TraverseStmt(F->getBody());
  return Finder.Found;
}
