//===- TakenApart.cpp - Tensors that are read by rows, or written ---------===//

#include "TakenApart.h"
#include "Fields.h"
#include "Together.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

Parameters accel::migrate::givenBy(const CallExpr *E,
                                   llvm::function_ref<bool(const Expr *)> IsIt,
                                   const ProgramIndex &Index) {
  Parameters Given;
  const llvm::ArrayRef<const Expr *> Args = passedBy(E);
  const auto Add = [&](const FunctionDecl *Body) {
    for (unsigned I = 0; I < Args.size() && I < Body->getNumParams(); ++I)
      if (IsIt(Args[I]))
        Given.push_back(Body->getParamDecl(I));
  };
  for (const FunctionDecl *Body : Index.callablesOf(E))
    Add(Body);
  if (const FunctionDecl *F = E->getDirectCallee())
    for (const FunctionDecl *Body : Index.ownBodiesOf(F))
      Add(Body);
  return Given;
}

/// Whether `E` is the variable, or what shares its memory: `x.select(1, 0)`, `x[i]`.
static bool isOf(const Expr *E, const ValueDecl *V) {
  constexpr unsigned Most = 8;
  for (unsigned I = 0; E && I < Most; ++I) {
    if (isNamed(E, V))
      return true;
    const auto *O = operatorCall(plain(E), OO_Subscript);
    E = O ? O->getArg(0) : leadingOperand(E);
  }
  return false;
}

namespace {

/// What is done with a variable, and the parameters that it is given to.
struct Handling {
  bool ByRows = false;  ///< Its rows are taken one by one, or its memory is.
  bool Written = false; ///< It is written in place, or its memory is asked for.
  Parameters Given;
};

Handling handlingOf(const ValueDecl *V, const Stmt *Body,
                    const ProgramIndex &Index) {
  Handling Of;
  eachIn<CallExpr>(Body, [&](const CallExpr *E) {
    if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
        O && isTensor(O->getArg(0)->getType())) {
      const bool IsAll = isNamed(O->getArg(0), V);
      Of.ByRows |= O->getOperator() == OO_Subscript && IsAll;
      // x += 1; x[0] = 1; `x = y` makes it another tensor.
      Of.Written |= O->isAssignmentOp() && isOf(O->getArg(0), V) &&
                    !(O->getOperator() == OO_Equal && IsAll);
    }
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
      const Expr *Object = Member->getImplicitObjectArgument();
      const llvm::StringRef Name = torchNameOf(E);
      const bool Memory = givesMemory(E->getDirectCallee());
      Of.ByRows |= isNamed(Object, V) && (Name == "unbind" || Memory ||
                                          rowOf(E, Index.Context).Tensor);
      Of.Written |=
          (Memory || (namesInPlace(Name) && Name != "requires_grad_" &&
                      Name != "detach_")) &&
          isOf(Object, V);
    }
    llvm::append_range(
        Of.Given,
        givenBy(E, [&](const Expr *Arg) { return isNamed(Arg, V); }, Index));
  });
  return Of;
}

using Asked = bool Handling::*;

bool is(Asked What, const ValueDecl *V, const FunctionDecl *F,
        const ProgramIndex &Index, unsigned Depth);

bool is(Asked What, llvm::ArrayRef<const ParmVarDecl *> Given,
        const ProgramIndex &Index, unsigned Depth) {
  constexpr unsigned Most = 3;
  return Depth < Most && llvm::any_of(Given, [&](const ParmVarDecl *P) {
           return is(What, P, cast<FunctionDecl>(P->getDeclContext()), Index,
                     Depth + 1);
         });
}

bool is(Asked What, const ValueDecl *V, const FunctionDecl *F,
        const ProgramIndex &Index, unsigned Depth) {
  const Handling Of = handlingOf(V, F->getBody(), Index);
  return Of.*What || is(What, Of.Given, Index, Depth);
}

} // namespace

bool accel::migrate::isTakenApart(const ValueDecl *V, const FunctionDecl *F,
                                  const ProgramIndex &Index) {
  return is(&Handling::ByRows, V, F, Index, /*Depth=*/0);
}

bool accel::migrate::isTakenApart(llvm::ArrayRef<const ParmVarDecl *> Given,
                                  const ProgramIndex &Index) {
  return is(&Handling::ByRows, Given, Index, /*Depth=*/0);
}

bool accel::migrate::isWritten(const ValueDecl *V, const FunctionDecl *F,
                               const ProgramIndex &Index) {
  return is(&Handling::Written, V, F, Index, /*Depth=*/0);
}
