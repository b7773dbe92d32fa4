//===- Expressions.cpp - The value of an expression -----------------------===//

#include "Assignments.h"
#include "Interpreter.h"
#include "TorchTypes.h"

#include "clang/AST/ExprCXX.h"

using namespace accel::migrate;
using namespace clang;

Value Interpreter::eval(const Expr *E) {
  if (!E)
    return Value();
  const Expr *P = plain(E);
  Value V = evalPlain(P);
  if (Plan && !inCallee() && V.replicated() &&
      llvm::is_contained(Plan->Inline, P))
    V = Value::partOf(V);
  if (V.replicated() && !V.Constant && P->getType()->isIntegralOrEnumerationType())
    V.Constant = constantOf(P, Context);
  return V;
}

Value Interpreter::evalPlain(const Expr *E) {
  if (const auto *X = dyn_cast<DeclRefExpr>(E))
    return evalVariable(X);
  if (const auto *X = dyn_cast<MemberExpr>(E))
    return evalMember(X);
  if (const auto *X = dyn_cast<CallExpr>(E))
    return evalCall(X);
  if (const auto *X = dyn_cast<CXXStdInitializerListExpr>(E))
    return eval(X->getSubExpr());
  if (const auto *X = dyn_cast<InitListExpr>(E))
    return evalList({X->getInits(), X->getNumInits()});
  if (const auto *X = dyn_cast<CXXConstructExpr>(E))
    return evalConstruct(X);
  if (const auto *X = dyn_cast<ExplicitCastExpr>(E)) {
    Value V = eval(X->getSubExpr());
    V.Constant.reset();
    return V;
  }
  if (const auto *X = dyn_cast<BinaryOperator>(E))
    return evalBinary(X);
  if (const auto *X = dyn_cast<UnaryOperator>(E)) {
    Value V = eval(X->getSubExpr());
    V.Constant.reset();
    if (X->isIncrementDecrementOp() && V.is(Placement::LocalSize)) {
      V = number(V);
      assign(X->getSubExpr(), V, E);
    }
    if (V.is(Placement::LocalSize))
      V.Scaled = true;
    return V;
  }
  if (const auto *X = dyn_cast<ConditionalOperator>(E)) {
    const Value Chooses = condition(X->getCond(), X);
    const Value Chosen =
        join(eval(X->getTrueExpr()), eval(X->getFalseExpr()),
             reason("ACL0100", X->getExprLoc(),
                    "'" + spelled(E) +
                        "' is a part of the batch in one case and something "
                        "else in the other"));
    return Chooses.is(Placement::PerProcess) && Chosen.replicated() ? Chooses
                                                                    : Chosen;
  }
  if (const auto *X = dyn_cast<ArraySubscriptExpr>(E)) {
    Value Base = eval(X->getBase());
    const Value At = eval(X->getIdx());
    if (At.is(Placement::LocalSize))
      number(At);
    else
      understood(At, E);
    return Base.element(At.Constant ? *At.Constant : ~0u);
  }
  if (isa<CXXThisExpr>(E)) {
    Value V = This;
    return V;
  }
  if (const auto *L = dyn_cast<LambdaExpr>(E)) {
    // Its body is followed where it is called.
    for (const LambdaCapture &C : L->captures())
      if (C.capturesVariable() && L->isInitCapture(&C))
        if (const auto *V = dyn_cast<VarDecl>(C.getCapturedVar()))
          declare(V, eval(V->getInit()));
    return Value();
  }
  if (const auto *X = dyn_cast<CXXThrowExpr>(E)) {
    if (X->getSubExpr())
      understood(eval(X->getSubExpr()), E);
    return Value();
  }
  if (isa<UnaryExprOrTypeTraitExpr, TypeTraitExpr, CXXNoexceptExpr,
          CXXTypeidExpr>(E))
    return Value();
  return evalChildren(E);
}

Value Interpreter::evalChildren(const Expr *E) {
  std::vector<Value> Parts;
  for (const Stmt *Child : E->children())
    if (const auto *X = dyn_cast_or_null<Expr>(Child))
      Parts.push_back(eval(X));
  if (const Value *Bad = firstUnknown(Parts))
    return Value::unknownFor(Bad->Why);
  Value Result;
  for (const Value &V : Parts) {
    addOrigins(Result, V);
    Result.MayHoldBatch |= V.MayHoldBatch;
    if (!V.replicated())
      return unknown("ACL0100", E,
                     "'" + spelled(E) +
                         "' uses a part of the batch in a way that is not "
                         "understood");
  }
  return Result;
}

Value Interpreter::evalVariable(const DeclRefExpr *E) {
  const ValueDecl *D = E->getDecl();
  if (const Value *Part = partOf(E))
    return *Part;
  auto Found = Env.find(D);
  if (Found != Env.end()) {
    Value V = Found->second.V;
    if (V.replicated() && V.MayHoldBatch && !inCallee() && !V.Object)
      V.Roots = {D};
    if (V.Shape && !inCallee())
      V.Variable = D;
    if (V.replicated() && isHostNumber(D->getType()) && Differs.byItself(D))
      V.P = Placement::PerProcess;
    return V;
  }
  Value V;
  if (isHostNumber(D->getType()) && Differs.in(D))
    V.P = Placement::PerProcess;
  const auto *Variable = dyn_cast<VarDecl>(D);
  if (!Variable)
    return V;
  if (moduleOf(D->getType()))
    V.Object = Variable;
  else if (holdsTensors(D->getType())) {
    V.MayHoldBatch = true;
    V.Roots = {Variable};
  }
  return V;
}

Value Interpreter::evalMember(const MemberExpr *E) {
  const Expr *BaseExpr = E->getBase();
  Value Base = eval(BaseExpr);
  Base.Constant.reset();
  if (isa<CXXMethodDecl>(E->getMemberDecl()))
    return Base;
  if (Base.replicated() && Differs.in(E->getMemberDecl()) &&
      isHostNumber(E->getType()))
    return Value::make(Placement::PerProcess);
  if (!Base.replicated()) {
    Value V = Base;
    // A field of a struct whose parts are known one by one.
    if (const auto *F = dyn_cast<FieldDecl>(E->getMemberDecl()))
      V = Base.element(F->getFieldIndex());
    return V;
  }
  // A parameter, a buffer or a submodule is part of the model: its first
  // dimension does not count samples.
  const CXXRecordDecl *Owner = recordOf(BaseExpr->getType());
  if (moduleOf(BaseExpr->getType()) ||
      isOrDerives(Owner, "torch::nn::Module")) {
    Value V;
    V.Object = Base.Object;
    V.FromModel = V.IsParameter = isTensor(E->getType());
    return V;
  }
  Value V = Base;
  if (const auto *F = dyn_cast<FieldDecl>(E->getMemberDecl()))
    V = V.element(F->getFieldIndex());
  // A model that an object has, which its methods name.
  V.Object = moduleOf(E->getType()) && isa<CXXThisExpr>(plain(BaseExpr))
                 ? E->getMemberDecl()
                 : nullptr;
  V.MayHoldBatch |= holdsTensors(E->getType());
  return V;
}

Value Interpreter::evalList(llvm::ArrayRef<const Expr *> Parts) {
  Value Result;
  std::vector<Value> Values;
  for (const Expr *E : Parts)
    Values.push_back(eval(E));
  // Behind a loop, beside what the program has as a whole.
  const bool Mixed =
      BatchDepth == 0 && llvm::any_of(Values, [](const Value &V) {
        return V.replicated() && V.MayHoldBatch;
      });
  for (unsigned I = 0; I < Values.size(); ++I) {
    Value V = Mixed && Values[I].LastBatch ? readOut(Values[I], Parts[I])
                                           : std::move(Values[I]);
    addOrigins(Result, V);
    if (V.replicated())
      Result.MayHoldBatch |= V.MayHoldBatch;
    Result.Elements.push_back(std::move(V));
  }
  settle(Result, Parts.empty() ? SourceLocation() : Parts[0]->getExprLoc());
  // A list of tensors that all have as many dimensions.
  for (const Value &V : Result.Elements) {
    const bool First = &V == &Result.Elements.front();
    Result.Rank = First || V.Rank == Result.Rank ? V.Rank : -1;
    Result.MinRank = First ? V.MinRank : std::min(Result.MinRank, V.MinRank);
  }
  return Result;
}

/// What is known of a tuple as a whole, from its elements.
void Interpreter::settle(Value &Tuple, SourceLocation Loc) {
  for (const Value &V : Tuple.Elements) {
    if (V.unknown()) {
      Tuple.P = Placement::Unknown;
      Tuple.Why = V.Why;
      return;
    }
    if (V.replicated() || V.P == Tuple.P)
      continue;
    if (!Tuple.replicated()) {
      Tuple.P = Placement::Unknown;
      Tuple.Why = reason("ACL0100", Loc,
                         "tensors that are split in different ways are put "
                         "together");
      return;
    }
    Tuple.P = V.P;
  }
  // A tuple of a part and of something whole is neither.
  if (!Tuple.replicated() && !Tuple.is(Placement::LocalSize))
    for (const Value &V : Tuple.Elements)
      if (V.replicated() && V.MayHoldBatch) {
        Tuple.P = Placement::Unknown;
        Tuple.Why = reason("ACL0100", Loc,
                           "a part of the batch and a tensor that may belong to "
                           "the whole batch are put together");
        return;
      }
}

Value Interpreter::evalConstruct(const CXXConstructExpr *E) {
  const CXXRecordDecl *D = E->getConstructor()->getParent();
  std::vector<Value> Args;
  for (const Expr *Arg : E->arguments())
    if (!isa<CXXDefaultArgExpr>(Arg))
      Args.push_back(eval(Arg));
  // Seeds are judged elsewhere (Randomness.cpp); generators stay alike.
  if (isEngine(D))
    return Value();
  const bool Tuple = D->getIdentifier() &&
                     (D->getName() == "tuple" || D->getName() == "pair" ||
                      D->getName() == "Example");
  const bool Wraps = Args.size() == 1 && (isTorch(D) || isInStd(D));
  if (const Value *Bad = firstUnknown(Args); Bad && !Tuple && !Wraps) {
    if (holdsTensors(E->getType()) || isHostNumber(E->getType()) || isTorch(D))
      return Value::unknownFor(Bad->Why);
    refuse(Bad->Why);
    return Value();
  }
  // Owners, wrappers and lists are what they are made from.
  if (Wraps) {
    Value V = Args[0];
    V.Constant = Args[0].Constant;
    return V;
  }
  // std::vector<torch::Tensor>(list.begin(), list.end() - 2)
  if (Args.size() == 2 && isInStd(D) && holdsTensors(E->getType()) &&
      Args[0].rows() && Args[1].rows()) {
    Value V = join(Args[0], Args[1],
                   reason("ACL0100", E->getExprLoc(),
                          "'" + spelled(E) +
                              "' is made from tensors that are split in "
                              "different ways"));
    V.Elements.clear();
    return V;
  }
  Value Result;
  bool Any = false;
  for (Value &V : Args) {
    addOrigins(Result, V);
    if (V.replicated())
      Result.MayHoldBatch |= V.MayHoldBatch && holdsTensors(E->getType());
    Any |= !V.replicated();
    if (Tuple)
      Result.Elements.push_back(V);
  }
  if (Args.empty() && (isInStd(D) || isTensor(E->getType())) &&
      holdsTensors(E->getType()))
    Result.Rank = Value::NoTensors;
  if (!Any)
    return Result;
  if (Tuple) {
    settle(Result, E->getExprLoc());
    return Result;
  }
  for (const Value &V : Args)
    if (!V.replicated() && !V.is(Placement::PerProcess)) {
      // IntArrayRef(begin, size), vector(n, value) …
      if (V.is(Placement::LocalSize)) {
        Value S = V;
        S.Scaled = true;
        return S;
      }
      return unknown("ACL0123", E,
                     "an object of the class '" + D->getNameAsString() +
                         "' is made from a part of the batch",
                     "Gather what it needs first, or make it from numbers.");
    }
  return Value::make(Placement::PerProcess);
}

/// Numbers of the host.
Value Interpreter::arithmetic(const Value &A, const Value &B, const Expr *E) {
  if (A.unknown())
    return A;
  if (B.unknown())
    return B;
  Value V;
  addOrigins(V, A);
  addOrigins(V, B);
  if (A.is(Placement::PerProcess) || B.is(Placement::PerProcess)) {
    V.P = Placement::PerProcess;
  } else if (A.is(Placement::LocalSize) || B.is(Placement::LocalSize)) {
    V.P = Placement::LocalSize;
    V.Scaled = true;
  } else if (!A.replicated() || !B.replicated()) {
    V.P = Placement::Unknown;
    V.Why = reason("ACL0100", E->getExprLoc(),
                   "the number '" + spelled(E) +
                       "' is calculated from a part of the batch");
  }
  return V;
}

Value Interpreter::evalBinary(const BinaryOperator *E) {
  if (E->isCompoundAssignmentOp()) {
    const Value Old = eval(E->getLHS());
    Value Added = eval(E->getRHS());
    // What is counted over batches counts samples of all processes.
    if (Added.is(Placement::LocalSize))
      Added = number(Added);
    Added = understood(Added, E);
    const Value Sum = arithmetic(
        Old.is(Placement::LocalSize) ? number(Old) : Old, Added, E);
    assign(E->getLHS(), Sum, E);
    return Sum;
  }
  if (E->isAssignmentOp()) {
    const Value V = eval(E->getRHS());
    assign(E->getLHS(), V, E);
    return V;
  }
  if (E->getOpcode() == BO_Comma) {
    eval(E->getLHS());
    return eval(E->getRHS());
  }
  if (E->isLogicalOp()) {
    // The right side, with what it reads, runs on some processes only if the
    // left side differs.
    const Value Left = condition(E->getLHS(), E->getRHS());
    const Value Right = eval(E->getRHS());
    return Left.is(Placement::PerProcess) && Right.replicated() ? Left : Right;
  }
  if (E->isComparisonOp() && asksWhetherEmpty(E))
    return Value();
  return arithmetic(eval(E->getLHS()), eval(E->getRHS()), E);
}

/// `x.numel() == 0`: no process has a part without rows (BatchShare), so that a
/// part has elements where the whole batch has some.
bool Interpreter::asksWhetherEmpty(const BinaryOperator *E) {
  const auto *Count = dyn_cast<CXXMemberCallExpr>(bare(E->getLHS()));
  if (!Count || constantOf(E->getRHS(), Context) != 0 ||
      !isTensor(Count->getImplicitObjectArgument()->getType()))
    return false;
  const CXXMethodDecl *M = Count->getMethodDecl();
  if (!M || !M->getIdentifier() || M->getName() != "numel")
    return false;
  const Value V = eval(Count->getImplicitObjectArgument());
  if (const Value *Bad = firstUnknown(V))
    refuse(Bad->Why);
  return true;
}

void Interpreter::assign(const Expr *To, Value V, const Expr *E) {
  To = plain(To);
  V.Constant.reset();
  // std::tie(a, b) = …
  if (isTupleOfReferences(To)) {
    unsigned I = 0;
    for (const Expr *Arg : cast<CallExpr>(To)->arguments())
      assign(Arg, V.element(I++), E);
    return;
  }
  const Expr *Whole = To;
  bool Part = false;
  while (true) {
    if (const auto *M = dyn_cast<MemberExpr>(Whole)) {
      Whole = plain(M->getBase());
      Part = true;
    } else if (const auto *S = dyn_cast<ArraySubscriptExpr>(Whole)) {
      eval(S->getIdx());
      Whole = plain(S->getBase());
      Part = true;
    } else if (const auto *O = dyn_cast<CXXOperatorCallExpr>(Whole);
               O && (O->getOperator() == OO_Subscript ||
                     O->getOperator() == OO_Arrow ||
                     O->getOperator() == OO_Star)) {
      if (O->getOperator() == OO_Subscript)
        eval(O->getArg(1));
      Whole = plain(O->getArg(0));
      Part = true;
    } else {
      break;
    }
  }
  const auto *Ref = dyn_cast<DeclRefExpr>(Whole);
  if (Ref && partOf(Ref))
    return refuse("ACL0118", E->getExprLoc(),
                  "'" + spelled(To) +
                      "' is changed after the model has read it as the batch",
                  "Change a copy, or change it before the model reads it.");
  const auto *Variable = Ref ? dyn_cast<ValueDecl>(Ref->getDecl()) : nullptr;
  auto Known = Variable ? Env.find(Variable) : Env.end();
  const Expr *Source = nullptr;
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
      O && O->getOperator() == OO_Equal)
    Source = O->getArg(1);
  // total += loss: what is added was read (Elementwise.cpp).
  if (Source && (Part || Known == Env.end()) &&
      (Known == Env.end() || (Known->second.Depth < BatchDepth &&
                              Known->second.V.replicated())))
    V = readOut(V, Source);
  if (Known == Env.end()) {
    // A member, a global, a parameter: seen by code that is not followed.
    if (const auto *P = dyn_cast_or_null<VarDecl>(Variable);
        P && P->hasLocalStorage() && !P->getType()->isReferenceType() &&
        !Part) {
      if (V.is(Placement::LocalSize))
        V = number(V);
      Value Stored = V;
      if (!inCallee())
        Stored.Roots.clear();
      Env[Variable] = {std::move(Stored), 0};
      return;
    }
    escape(V, E, "'" + spelled(To) + "'");
    return;
  }
  const bool Outer = Known->second.Depth < BatchDepth;
  if (Outer && V.is(Placement::LocalSize))
    V = number(V);
  if (const auto *P = dyn_cast<VarDecl>(Variable);
      P && P->getType()->isReferenceType() && Outer && !V.replicated())
    return escape(V, E, "'" + spelled(To) + "'");
  if (!inCallee())
    V.Roots.clear();
  if (!Part) {
    V.Object = V.Object ? V.Object : Known->second.V.Object;
    Known->second.V = std::move(V);
    return;
  }
  Value &Old = Known->second.V;
  if (Old.replicated() && V.replicated()) {
    Old.MayHoldBatch |= V.MayHoldBatch;
    Old.FromModel |= V.FromModel;
    return;
  }
  if (Outer)
    return escape(V, E, "'" + spelled(To) + "'");
  if (isTensor(Variable->getType())) {
    Old = unknown("ACL0100", E,
                  "'" + spelled(E) +
                      "' writes into a tensor of this process's part of the "
                      "batch by index",
                  "Compute the tensor as a whole, for example with "
                  "torch::where.");
    return;
  }
  if (!Old.Elements.empty() || Old.unknown()) {
    Old = Value::unknownFor(
        Old.unknown() ? Old.Why
                      : reason("ACL0100", E->getExprLoc(),
                               "a part of '" + Variable->getNameAsString() +
                                   "' is changed, which holds tensors that are "
                                   "split in different ways"));
    return;
  }
  Old = join(Old, V,
             reason("ACL0100", E->getExprLoc(),
                    "'" + spelled(To) +
                        "' is set to something that is not split as the rest "
                        "of '" +
                        Variable->getNameAsString() + "' is"));
}

void Interpreter::escape(const Value &V, const Expr *E,
                         const std::string &Into) {
  if (V.replicated() || V.is(Placement::PerProcess))
    return;
  if (V.is(Placement::LocalSize)) {
    number(V);
    return;
  }
  if (const Value *Bad = firstUnknown(V))
    return refuse(Bad->Why);
  refuse("ACL0128", E->getExprLoc(),
         "a tensor of this process's part of the batch is kept in " + Into +
             ", where code outside of this step can see it",
         "Keep what accelerator.gather_for_metrics(x) returns, or a number "
         "read with item().");
}
