//===- Calls.cpp - Calls, by what is called -------------------------------===//

#include "Calls.h"

#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isNamed(const FunctionDecl *F,
                             llvm::ArrayRef<llvm::StringRef> Names) {
  return F->getIdentifier() && llvm::is_contained(Names, F->getName());
}

std::vector<const Expr *> accel::migrate::argumentsOf(const CallExpr *E,
                                                      unsigned From) {
  std::vector<const Expr *> Result;
  for (unsigned I = From; I < E->getNumArgs(); ++I)
    Result.push_back(E->getArg(I));
  return Result;
}

void accel::migrate::addOperands(OpCall &Call, const FunctionDecl *F,
                                 llvm::ArrayRef<const Expr *> Args,
                                 llvm::ArrayRef<Value> Values) {
  for (unsigned I = 0; I < Args.size(); ++I) {
    Operand O;
    if (I < F->getNumParams() && F->getParamDecl(I)->getIdentifier())
      O.Name = F->getParamDecl(I)->getName();
    O.E = Args[I];
    O.V = Values[I];
    O.Tensors = holdsTensors(plain(Args[I])->getType()) ||
                holdsTensors(bare(Args[I])->getType());
    Call.Operands.push_back(std::move(O));
  }
}

/// Whether a call makes a tensor of its own memory, whatever it is given.
static bool makesNew(const CallExpr *Call, const FunctionDecl *F) {
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(Call))
    switch (O->getOperator()) {
    case OO_Plus:
    case OO_Minus:
    case OO_Star:
    case OO_Slash:
      return O->getNumArgs() == 2 && isTorch(F);
    default:
      return false;
    }
  if (!F->getIdentifier() || !isTorch(F))
    return false;
  static const std::set<std::string> New = {
      "empty",      "zeros",      "ones",      "full",         "rand",
      "randn",      "randint",    "arange",    "linspace",     "tensor",
      "empty_like", "ones_like",  "zeros_like", "full_like",   "rand_like",
      "randn_like", "clone",      "randperm",  "randint_like", "eye",
      "add",        "sub",        "mul",       "div",          "pow",
      "exp",        "log",        "sqrt",      "rsqrt",        "abs",
      "neg",        "sin",        "cos",       "tanh",         "sigmoid",
      "square",     "reciprocal", "clamp",     "relu",         "matmul",
      "mm",         "bmm",        "stack",     "masked_fill",  "where"};
  return New.count(F->getName().str()) != 0;
}

/// What an operation in place changes: through `x.mul_(2).add_(1)`, x. Null for
/// tensors that nobody else has, as in `torch::empty(n).uniform_(0, 1)`.
static const Expr *inPlaceTarget(const Expr *E) {
  while (const auto *Call = dyn_cast<CallExpr>(plain(E))) {
    const FunctionDecl *F = Call->getDirectCallee();
    if (F && makesNew(Call, F))
      return nullptr;
    if (!F || !F->getIdentifier() || !isTorch(F))
      return E;
    const auto *Member = dyn_cast<CXXMemberCallExpr>(Call);
    if (!Member || !F->getName().ends_with("_") ||
        !isTensor(Member->getImplicitObjectArgument()->getType()))
      return E;
    E = Member->getImplicitObjectArgument();
  }
  return E;
}

Value Interpreter::evalCall(const CallExpr *E) {
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E))
    return evalOperator(O);
  const FunctionDecl *F = E->getDirectCallee();
  const std::vector<const Expr *> Args = argumentsOf(E);
  if (!F) {
    std::vector<Value> Values;
    for (const Expr *Arg : Args)
      Values.push_back(eval(Arg));
    return evalForeign(nullptr, E, Args, Values);
  }
  if (isPerProcess(F) && !tellsOfInput(E, F)) {
    for (const Expr *Arg : Args)
      understood(eval(Arg), E);
    return Value::make(Placement::PerProcess);
  }

  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
    const Expr *Object = Member->getImplicitObjectArgument();
    const CXXRecordDecl *Class = recordOf(Object->getType());
    if (isTensor(Object->getType())) {
      if (isNamed(F, {"backward"})) {
        const Value Loss = eval(Object);
        for (const Expr *Arg : Args)
          understood(eval(Arg), E);
        Out->Backwards.push_back({Member, Loss, Stack.back()});
        return Value();
      }
      if (isNamed(F, {"grad", "mutable_grad"}))
        return gradientOf(eval(Object), E);
      OpCall Call;
      Call.Call = E;
      Operand Self;
      Self.Name = "self";
      Self.E = Object;
      Self.V = eval(Object);
      Self.Tensors = true;
      Call.Operands.push_back(std::move(Self));
      std::vector<Value> Values;
      for (const Expr *Arg : Args)
        Values.push_back(eval(Arg));
      addOperands(Call, F, Args, Values);
      Call.Name = F->getNameAsString();
      Value Result = evalOp(Call);
      if (Call.InPlace)
        if (const Expr *Target = inPlaceTarget(Object))
          assign(Target, Result, E);
      if (!Call.InPlace)
        Result.IsParameter = false;
      return Result;
    }
    std::vector<Value> Values;
    for (const Expr *Arg : Args)
      Values.push_back(eval(Arg));
    // bn->forward(x) is a method of a base that only LibTorch names.
    const CXXRecordDecl *Impl = moduleOf(plain(Object)->getType());
    if (!Impl)
      Impl = moduleOf(Object->getType());
    if (Impl) {
      const Value Self = eval(Object);
      const auto *M = cast<CXXMethodDecl>(F);
      const bool OfHolder = M->getParent()->getIdentifier() &&
                            M->getParent()->getName() == "ModuleHolder";
      // get(), ptr(), operator->: the module itself.
      if (OfHolder || (isInStd(M) && Values.empty()))
        return Self;
      if (isNamed(F, {"forward"}) || (Index.isOwn(F) && !isTorch(F)))
        return evalModule(Impl, Self, E, Args, Values);
      if (isNamed(F, {"eval", "train"}))
        setMode(Self, F->getName() == "eval" ||
                          (!Args.empty() && Values[0].Constant == 0));
      // train(), parameters(), to(device), zero_grad() …
      for (const Value &V : Values)
        escape(V, E, "the model");
      Value Result;
      Result.FromModel = true;
      Result.IsParameter = isNamed(F, {"parameters", "named_parameters"});
      return Result;
    }
    // What it holds is known where the program makes all of them from one class.
    if (isAnyModule(Object->getType()) && isNamed(F, {"forward"}) &&
        Index.anyModule()) {
      Value Self = eval(Object);
      Self.Object = nullptr;
      return evalModule(Index.anyModule(), Self, E, Args, Values);
    }
    if (optimizerOf(Object->getType()) || schedulerOf(Object->getType())) {
      for (const Value &V : Values)
        understood(V, E);
      if (isNamed(F, {"step"}) && optimizerOf(Object->getType()))
        stepWithClosure(E);
      Value Result;
      // The tensors of the optimizer's groups.
      Result.IsParameter = isNamed(F, {"param_groups", "parameters"});
      return Result;
    }
    if (Index.isOwn(F)) {
      const Value Self = eval(Object);
      return evalOwn(F, E, Args, Values, &Self);
    }
    if (isTorch(F) || isInStd(F)) {
      bool Known = false;
      Value Result = evalStd(F, E, Known);
      if (Known)
        return Result;
    }
    if (std::optional<Value> Result = evalScripted(Member, Values))
      return *Result;
    Values.insert(Values.begin(), eval(Object));
    std::vector<const Expr *> All(Args);
    All.insert(All.begin(), Object);
    (void)Class;
    return evalForeign(F, E, All, Values);
  }

  if (isInStd(F) || isTorch(F)) {
    bool Known = false;
    Value Result = evalStd(F, E, Known);
    if (Known)
      return Result;
  }
  std::vector<Value> Values;
  for (const Expr *Arg : Args)
    Values.push_back(eval(Arg));
  if (Index.isOwn(F))
    return evalOwn(F, E, Args, Values, nullptr);
  if (isTorch(F)) {
    bool Tensors = holdsTensors(F->getReturnType());
    for (const Expr *Arg : Args)
      Tensors |= holdsTensors(plain(Arg)->getType());
    if (Tensors && !isNamed(F, {"save", "load", "clip_grad_norm_",
                                "clip_grad_value_"})) {
      OpCall Call;
      Call.Call = E;
      Call.Name = F->getNameAsString();
      addOperands(Call, F, Args, Values);
      Value Result = evalOp(Call);
      if (Call.InPlace && !Args.empty())
        assign(Args[0], Result, E);
      return Result;
    }
  }
  return evalForeign(F, E, Args, Values);
}
