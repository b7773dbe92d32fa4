//===- Operators.cpp - Overloaded operators -------------------------------===//

#include "Calls.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

static std::string operationOf(OverloadedOperatorKind K, bool Unary,
                               bool &InPlace) {
  switch (K) {
  case OO_PlusEqual:
    InPlace = true;
    return "add";
  case OO_MinusEqual:
    InPlace = true;
    return "sub";
  case OO_StarEqual:
    InPlace = true;
    return "mul";
  case OO_SlashEqual:
    InPlace = true;
    return "div";
  case OO_Plus:
    return Unary ? "positive" : "add";
  case OO_Minus:
    return Unary ? "neg" : "sub";
  case OO_Star:
    return "mul";
  case OO_Slash:
    return "div";
  case OO_Percent:
    return "remainder";
  case OO_Less:
    return "lt";
  case OO_LessEqual:
    return "le";
  case OO_Greater:
    return "gt";
  case OO_GreaterEqual:
    return "ge";
  case OO_EqualEqual:
    return "eq";
  case OO_ExclaimEqual:
    return "ne";
  case OO_Amp:
  case OO_AmpAmp:
    return "logical_and";
  case OO_Pipe:
  case OO_PipePipe:
    return "logical_or";
  case OO_Exclaim:
  case OO_Tilde:
    return "logical_not";
  case OO_Subscript:
    return "operator[]";
  default:
    return "";
  }
}

Value Interpreter::evalOperator(const CXXOperatorCallExpr *E) {
  const OverloadedOperatorKind K = E->getOperator();
  const FunctionDecl *F = E->getDirectCallee();
  const Expr *First = E->getArg(0);
  if ((K == OO_LessLess || K == OO_GreaterGreater) &&
      isOrDerives(recordOf(First->getType()), "std::basic_ios"))
    return evalPrint(E);

  if (K == OO_Call) {
    std::vector<const Expr *> Args = argumentsOf(E, 1);
    std::vector<Value> Values;
    for (const Expr *Arg : Args)
      Values.push_back(eval(Arg));
    if (const CXXRecordDecl *Impl = moduleOf(First->getType())) {
      const Value Self = eval(First);
      return evalModule(Impl, Self, E, Args, Values);
    }
    if (F && Index.isOwn(F)) {
      const bool Lambda = cast<CXXMethodDecl>(F)->getParent()->isLambda();
      const Value Self = Lambda ? This : eval(First);
      return evalOwn(F, E, Args, Values, &Self);
    }
    if (F && isPerProcess(F))
      return Value::make(Placement::PerProcess);
    if (const FunctionDecl *Closure = closureOf(First))
      return evalOwn(Closure, E, Args, Values, nullptr);
    Values.insert(Values.begin(), eval(First));
    Args.insert(Args.begin(), First);
    return evalForeign(F, E, Args, Values);
  }
  if ((K == OO_Arrow || (K == OO_Star && E->getNumArgs() == 1)))
    return eval(First).element(~0u);

  const bool Tensors =
      isTensor(First->getType()) ||
      (E->getNumArgs() > 1 && isTensor(E->getArg(1)->getType()));
  if (K == OO_Equal) {
    Value V = eval(E->getArg(1));
    assign(First, V, E);
    return V;
  }
  if (Tensors && F && isTorch(F)) {
    OpCall Call;
    Call.Call = E;
    Call.Name = operationOf(K, E->getNumArgs() == 1, Call.InPlace);
    for (unsigned I = 0; I < E->getNumArgs(); ++I) {
      Operand O;
      O.Name = I ? "other" : "self";
      O.E = E->getArg(I);
      O.V = eval(O.E);
      O.Tensors = isTensor(plain(O.E)->getType());
      Call.Operands.push_back(std::move(O));
    }
    const bool InPlace = Call.InPlace;
    Value Result = evalOp(Call);
    if (InPlace)
      assign(First, Result, E);
    return Result;
  }
  if (K == OO_Subscript) {
    Value Base = eval(First);
    const Value At = eval(E->getArg(1));
    if (Base.is(Placement::LocalSize)) {
      // x.sizes()[0]
      const std::optional<int64_t> Dim = At.Constant;
      if (!Dim || *Dim < 0)
        return unknown("ACL0129", E,
                       "'" + spelled(E) +
                           "' may be the size of this process's part of the "
                           "batch");
      if (*Dim != 0)
        return Value();
      Value V = Base;
      V.Sizes = {E};
      return V;
    }
    if (At.is(Placement::LocalSize))
      number(At);
    else if (!At.replicated())
      understood(At, E);
    return Base.element(At.Constant ? *At.Constant : ~0u);
  }
  std::vector<const Expr *> Args = argumentsOf(E);
  std::vector<Value> Values;
  for (const Expr *Arg : Args)
    Values.push_back(eval(Arg));
  if (F && Index.isOwn(F)) {
    if (isa<CXXMethodDecl>(F)) {
      const Value Self = Values[0];
      return evalOwn(F, E, llvm::ArrayRef(Args).drop_front(),
                     llvm::ArrayRef(Values).drop_front(), &Self);
    }
    return evalOwn(F, E, Args, Values, nullptr);
  }
  // tensors.end() - 2: an iterator of the same list.
  if (Values.size() == 2 && (K == OO_Plus || K == OO_Minus) &&
      Values[1].replicated() && !isHostNumber(E->getType()))
    return Values[0];
  if (Values.size() == 2 && !E->isAssignmentOp())
    return arithmetic(Values[0], Values[1], E);
  return evalForeign(F, E, Args, Values);
}

/// `stream << value`.
Value Interpreter::evalPrint(const CXXOperatorCallExpr *E) {
  eval(E->getArg(0));
  const Expr *What = E->getArg(1);
  const Value V = eval(What);
  if (V.is(Placement::LocalSize))
    number(V);
  else if (isTensor(plain(What)->getType()))
    metricRead(What, V, E);
  else
    escape(V, E, "what is printed");
  return Value();
}
