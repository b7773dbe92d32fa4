//===- Functional.cpp - Functions that were made into modules -------------===//
//
// torch::nn::Functional(torch::max_pool2d, 3, 2): the function is applied to the
// input and to what was bound when the module was made. Which of the program's
// Functional modules one call reaches is not followed, so all of them must do.
//
//===----------------------------------------------------------------------===//

#include "Calls.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// What is bound: a list in a variable that keeps its value is as good as the
/// list itself.
static const Expr *spelledOut(const Expr *E) {
  const auto *Ref = dyn_cast<DeclRefExpr>(bare(E));
  const auto *Variable = Ref ? dyn_cast<VarDecl>(Ref->getDecl()) : nullptr;
  return Variable && Variable->getInit() && !isReassigned(Variable)
             ? Variable->getInit()
             : E;
}

Value Interpreter::evalFunctional(const CXXConstructExpr *Made,
                                  const CallExpr *E, const Expr *Input,
                                  const Value &X) {
  auto NotSeen = [&] {
    return unknown("ACL0122", Made,
                   "which function this torch::nn::Functional applies is not to "
                   "be seen",
                   "Give it a function or a lambda where it is made.");
  };
  if (Made->getNumArgs() == 0)
    return NotSeen();
  if (const FunctionDecl *Closure = closureOf(Made->getArg(0))) {
    if (!Closure->hasBody() || Made->getNumArgs() > 1)
      return NotSeen();
    return evalOwn(Closure, E, {Input}, {X}, nullptr);
  }
  const Expr *Named = bare(Made->getArg(0));
  if (const auto *Address = dyn_cast<UnaryOperator>(Named))
    Named = bare(Address->getSubExpr());
  const auto *Ref = dyn_cast<DeclRefExpr>(Named);
  const auto *F = Ref ? dyn_cast<FunctionDecl>(Ref->getDecl()) : nullptr;
  if (!F)
    return NotSeen();
  std::vector<const Expr *> Args = {Input};
  std::vector<Value> Values = {X};
  for (unsigned I = 1; I < Made->getNumArgs(); ++I) {
    Args.push_back(spelledOut(Made->getArg(I)));
    Values.push_back(eval(Args.back()));
  }
  if (Index.isOwn(F))
    return evalOwn(F, E, Args, Values, nullptr);
  if (!isTorch(F) || !F->getIdentifier())
    return NotSeen();
  OpCall Call;
  Call.Call = E;
  Call.Name = F->getNameAsString();
  addOperands(Call, F, Args, Values);
  return evalOp(Call);
}
