//===- Groups.cpp - Batches that a model takes apart ----------------------===//

#include "Groups.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// What `E` is a part of, through local variables: the parameter batch of batch[0],
/// std::get<0>(batch).view({-1}), or of x in `auto [x, y] = batch`; null for itself.
static const ValueDecl *wholeOf(const Expr *E) {
  constexpr unsigned Deepest = 32;
  bool IsPart = false;
  for (unsigned Depth = 0; E && Depth < Deepest; ++Depth) {
    E = plain(E);
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E)) {
      const ValueDecl *D = Ref->getDecl();
      if (isa<ParmVarDecl>(D))
        return IsPart ? D : nullptr;
      if (const auto *B = dyn_cast<BindingDecl>(D)) {
        D = cast<ValueDecl>(B->getDecomposedDecl());
        IsPart = true;
      }
      const auto *V = dyn_cast<VarDecl>(D);
      E = V && V->isLocalVarDecl() ? V->getInit() : nullptr;
    } else if (const auto *M = dyn_cast<MemberExpr>(E)) {
      IsPart = true;
      E = M->getBase();
    } else if (const auto *O = operatorCall(E, OO_Subscript)) {
      IsPart = true;
      E = O->getArg(0);
    } else if (const llvm::StringRef Name = stdNameOf(calleeOf(E));
               Name == "get" || Name == "at") {
      IsPart = true;
      const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
      E = Member ? Member->getImplicitObjectArgument()
                 : cast<CallExpr>(E)->getArg(0);
    } else {
      E = leadingOperand(E);
    }
  }
  return nullptr;
}

/// batch[0], torch::cat({batch[0], batch[1]}, 1)
static bool holdsPart(const Stmt *S, const ParmVarDecl *Whole) {
  return existsIn(S, [&](const Stmt *Part) {
    const auto *E = dyn_cast<Expr>(Part);
    return E && isTensor(E->getType()) && wholeOf(E) == Whole;
  });
}

/// Whether a model is given a part of a parameter.
static bool givesPart(const Stmt *Body, const ParmVarDecl *Whole) {
  return anyIn<CallExpr>(Body, [&](const CallExpr *E) {
    const std::optional<ModelCall> Call = modelCallOf(E);
    return Call && llvm::any_of(Call->Inputs, [&](const Expr *Input) {
             return isTensor(plain(Input)->getType()) && holdsPart(Input, Whole);
           });
  });
}

llvm::SmallVector<const FunctionDecl *, 2>
accel::migrate::bodiesRunBy(const CallExpr *ReadBy, const ProgramIndex &Index) {
  const FunctionDecl *F = ReadBy->getDirectCallee();
  if (!F)
    return {};
  auto Bodies = Index.ownBodiesOf(F);
  const std::optional<ModelCall> Call = modelCallOf(ReadBy);
  const CXXRecordDecl *Impl =
      Call && isTorch(F) ? moduleOf(Call->Model->getType()) : nullptr;
  if (Impl && Impl->getDefinition())
    for (const CXXMethodDecl *M : Impl->getDefinition()->methods())
      if (nameOf(M) == "forward")
        llvm::append_range(Bodies, Index.ownBodiesOf(M));
  return Bodies;
}

bool accel::migrate::isGroup(const Expr *Input, const CallExpr *ReadBy,
                             const ProgramIndex &Index) {
  const Expr *Given = plain(bare(Input));
  const QualType T = Given->getType();
  const bool IsNamed =
      isa<DeclRefExpr, MemberExpr>(Given) || operatorCall(Given, OO_Subscript);
  if (!IsNamed || isTensor(T) || isNamedBatch(T) ||
      !(isBatch(T) || isVectorOfTensors(T)))
    return false;
  const llvm::ArrayRef<const Expr *> Args = passedBy(ReadBy);
  const auto *At = llvm::find_if(
      Args, [&](const Expr *Arg) { return plain(bare(Arg)) == Given; });
  if (At == Args.end())
    return false;
  const unsigned I = At - Args.begin();
  return llvm::any_of(bodiesRunBy(ReadBy, Index), [&](const FunctionDecl *Body) {
    return I < Body->getNumParams() &&
           givesPart(Body->getBody(), Body->getParamDecl(I));
  });
}
