//===- Calls.cpp - Calls, by what is called -------------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"
#include "clang/AST/RecursiveASTVisitor.h"

using namespace accel::migrate;
using namespace clang;

/// Calls that are followed into each other; deeper ones are not understood.
static constexpr size_t MaxDepth = 16;

static bool isNamed(const FunctionDecl *F,
                    llvm::ArrayRef<llvm::StringRef> Names) {
  return F->getIdentifier() && llvm::is_contained(Names, F->getName());
}

/// What differs between processes, whatever the data.
static bool isPerProcess(const FunctionDecl *F) {
  static const std::set<std::string> Names = {
      "now",    "time",     "clock",         "gettimeofday", "clock_gettime",
      "getpid", "gethostname", "get_id",     "times",        "ftime"};
  if (F->getIdentifier())
    return Names.count(F->getName().str()) &&
           (isInStd(F) || F->isExternC() || !F->hasBody());
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  return M && M->getParent()->getIdentifier() &&
         M->getParent()->getName() == "random_device";
}

static std::vector<const Expr *> argumentsOf(const CallExpr *E,
                                             unsigned From = 0) {
  std::vector<const Expr *> Result;
  for (unsigned I = From; I < E->getNumArgs(); ++I)
    Result.push_back(E->getArg(I));
  return Result;
}

/// The operands of a call of a tensor operation, with their parameters' names.
static void addOperands(OpCall &Call, const FunctionDecl *F,
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
  if (isPerProcess(F)) {
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
        if (inCallee())
          refuse("ACL0108", E->getExprLoc(),
                 "backward() is called in a function that is called from the "
                 "loop over batches",
                 "Move the call into the loop.");
        else
          Out->Backwards.push_back({Member, Loss, Conditions ? nullptr : Top});
        return Value();
      }
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
        assign(Object, Result, E);
      return Result;
    }
    std::vector<Value> Values;
    for (const Expr *Arg : Args)
      Values.push_back(eval(Arg));
    if (const CXXRecordDecl *Impl = moduleOf(Object->getType())) {
      const Value Self = eval(Object);
      const auto *M = cast<CXXMethodDecl>(F);
      const bool OfHolder = M->getParent()->getIdentifier() &&
                            M->getParent()->getName() == "ModuleHolder";
      // get(), ptr(), operator->: the module itself.
      if (OfHolder || (isInStd(M) && Values.empty()))
        return Self;
      if (isNamed(F, {"forward"}) || (Index.isOwn(F) && !isTorch(F)))
        return evalModule(Impl, Self, E, Args, Values);
      // train(), parameters(), to(device), zero_grad() …
      for (const Value &V : Values)
        escape(V, E, "the model");
      Value Result;
      Result.FromModel = true;
      return Result;
    }
    if (optimizerOf(Object->getType()) || schedulerOf(Object->getType())) {
      for (const Value &V : Values)
        understood(V, E);
      if (isNamed(F, {"step"}) && optimizerOf(Object->getType())) {
        Out->Steps.push_back(E);
        if (inCallee())
          refuse("ACL0114", E->getExprLoc(),
                 "the optimizer steps in a function that is called from the "
                 "loop over batches",
                 "Move the call of step() into the loop.");
        else if (Conditions && BatchDepth)
          refuse("ACL0114", E->getExprLoc(),
                 "the optimizer steps only under a condition, as in gradient "
                 "accumulation by hand",
                 "Step in every pass, and give the number of micro-batches to "
                 "AcceleratorOptions().gradient_accumulation_steps(n).");
      }
      return Value();
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
  if (Values.size() == 2 && !E->isAssignmentOp())
    return arithmetic(Values[0], Values[1]);
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

/// The program wants the value of a tensor.
void Interpreter::metricRead(const Expr *Object, const Value &V,
                             const Expr *E) {
  if (V.replicated())
    return;
  if (!inCallee()) // Also those that cannot be reduced: a gather may help.
    Out->Reads.push_back({Object, V.P, Top});
  if (const Value *Bad = firstUnknown(V))
    return refuse(Bad->Why);
  if (!V.reduced())
    return refuse(
        "ACL0126", E->getExprLoc(),
        "'" + spelled(E) +
            "' reads single samples of this process's part of the batch",
        "Gather the tensor with accelerator.gather_for_metrics(x) before.");
  if (inCallee())
    return refuse("ACL0126", E->getExprLoc(),
                  "'" + spelled(E) +
                      "' reads a tensor of this process's part of the batch in "
                      "a function that is called from the loop",
                  "Return the tensor and read it in the loop.");
}

namespace {
/// Whether code refers to variables that are not replicated.
class CaptureFinder : public RecursiveASTVisitor<CaptureFinder> {
public:
  using Lookup = std::function<bool(const ValueDecl *)>;
  explicit CaptureFinder(Lookup IsLocal) : IsLocal(std::move(IsLocal)) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) {
    if (IsLocal(E->getDecl()))
      Found = E;
    return !Found;
  }
  const DeclRefExpr *Found = nullptr;

private:
  Lookup IsLocal;
};
} // namespace

/// A function whose body is not to be seen.
Value Interpreter::evalForeign(const FunctionDecl *F, const CallExpr *E,
                               llvm::ArrayRef<const Expr *> Args,
                               llvm::ArrayRef<Value> Values) {
  const std::string Name =
      F ? "'" + F->getNameAsString() + "'" : "'" + spelled(E->getCallee()) + "'";
  Value Result;
  bool PerProcess = false;
  for (unsigned I = 0; I < Values.size(); ++I) {
    const Value &V = Values[I];
    if (const auto *L = dyn_cast<LambdaExpr>(bare(Args[I]))) {
      CaptureFinder Finder([&](const ValueDecl *D) {
        auto It = Env.find(D);
        return It != Env.end() && !It->second.V.replicated();
      });
      Finder.TraverseStmt(L->getBody());
      if (Finder.Found)
        return unknown("ACL0123", E,
                       "a part of the batch is used in a lambda that is given "
                       "to " +
                           Name,
                       "Call it directly in the loop.");
    }
    if (const Value *Bad = firstUnknown(V)) {
      refuse(Bad->Why);
      return Value();
    }
    if (V.is(Placement::LocalSize)) {
      number(V);
    } else if (V.is(Placement::PerProcess)) {
      PerProcess = true;
    } else if (!V.replicated()) {
      Value U = unknown("ACL0123", E,
                        "a part of the batch is given to " + Name +
                            ", of which it is not known what it does with it",
                        "Gather what it needs before, or compute it with "
                        "tensor operations in the loop.");
      // What it does with it may stay out of sight.
      if (E->getType()->isVoidType() || !holdsTensors(E->getType()))
        refuse(U.Why);
      return U;
    }
    addOrigins(Result, V);
  }
  if (PerProcess && !holdsTensors(E->getType())) {
    Result.P = Placement::PerProcess;
    // It may shuffle or seed something with it that is not seen.
    if (E->getType()->isVoidType())
      refuse("ACL0127", E->getExprLoc(),
             "a value that differs between processes is given to " + Name,
             "Use a value that is the same on all processes.");
  }
  Result.MayHoldBatch = holdsTensors(E->getType());
  if (moduleOf(E->getType()) && !Values.empty())
    Result.Object = Values.front().Object;
  return Result;
}

Value Interpreter::evalStd(const FunctionDecl *F, const CallExpr *E,
                           bool &Known) {
  Known = true;
  const std::vector<const Expr *> Args = argumentsOf(E);
  if (isInStd(F) && isNamed(F, {"move", "forward", "ref", "cref", "as_const"}) &&
      Args.size() == 1)
    return eval(Args[0]);
  if (isInStd(F) && isNamed(F, {"get"}) && Args.size() == 1) {
    const Value V = eval(Args[0]);
    if (const TemplateArgumentList *T = F->getTemplateSpecializationArgs();
        T && T->size() && T->get(0).getKind() == TemplateArgument::Integral)
      return V.element(T->get(0).getAsIntegral().getExtValue());
    return V.element(~0u);
  }
  if (isInStd(F) && isNamed(F, {"make_tuple", "make_pair", "tie"}))
    return evalList(Args);
  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
    const Expr *Object = Member->getImplicitObjectArgument();
    if (isNamed(F, {"value", "get", "lock", "vec", "value_or", "operator*"}))
      return eval(Object);
    if (isNamed(F, {"push_back", "emplace_back"}) && Args.size() == 1 &&
        isInStd(F)) {
      const Value Added = eval(Args[0]);
      const Value Old = eval(Object);
      if (Added.replicated() && Old.replicated()) {
        assign(Object, join(Old, Added, nullptr), E);
        return Value();
      }
      const auto *Variable = variableOf(Object);
      auto It = Variable ? Env.find(Variable) : Env.end();
      if (It == Env.end() || It->second.Depth < BatchDepth) {
        escape(Added, E, "'" + spelled(Object) + "'");
        return Value();
      }
      Value &List = It->second.V;
      if (List.replicated() && !List.MayHoldBatch)
        List = Added;
      else
        List = join(List, Added,
                    reason("ACL0100", E->getExprLoc(),
                           "'" + spelled(Object) +
                               "' collects tensors that are split in different "
                               "ways"));
      List.Elements.clear();
      return Value();
    }
    if (isNamed(F, {"at", "front", "back", "begin", "end", "cbegin", "cend"})) {
      for (const Expr *Arg : Args)
        understood(eval(Arg), E);
      return eval(Object).element(~0u);
    }
    if (isNamed(F, {"size", "empty"}) && isInStd(F)) {
      const Value V = eval(Object);
      if (V.is(Placement::Rows) || V.replicated() || V.reduced())
        return Value();
      return V;
    }
    const std::string Name = F->getNameAsString();
    if (llvm::StringRef(Name).starts_with("operator ") ||
        llvm::StringRef(Name).starts_with("to")) // Conversions of Scalar.
      if (Args.empty())
        return eval(Object);
    Known = false;
    return Value();
  }
  if (isInStd(F)) {
    // Functions of numbers.
    std::vector<Value> Values;
    bool Numbers = isHostNumber(E->getType()) && !Args.empty();
    for (const Expr *Arg : Args)
      Numbers &= isHostNumber(plain(Arg)->getType()) &&
                 !plain(Arg)->getType()->isPointerType();
    if (Numbers) {
      Value Result;
      for (const Expr *Arg : Args) {
        Value V = eval(Arg);
        if (V.is(Placement::LocalSize)) {
          Value N = V;
          N.Scaled = true;
          V = N;
        }
        Result = arithmetic(Result, V);
      }
      return Result;
    }
  }
  Known = false;
  return Value();
}

/// A function of the person's own: its body is followed.
Value Interpreter::evalOwn(const FunctionDecl *F, const CallExpr *E,
                           llvm::ArrayRef<const Expr *> Args,
                           llvm::ArrayRef<Value> Values, const Value *Self) {
  const FunctionDecl *Body = nullptr;
  if (!F->hasBody(Body) || Stack.size() > MaxDepth ||
      llvm::is_contained(Stack, Body))
    return evalForeign(F, E, Args, Values);
  if (Index.runsBatches(Body)) {
    for (const Value &V : Values)
      escape(V, E, "an argument of '" + F->getNameAsString() +
                       "', which runs a loop over batches of its own");
    Value Result;
    Result.MayHoldBatch = holdsTensors(E->getType());
    return Result;
  }
  const bool Lambda = isa<CXXMethodDecl>(Body) &&
                      cast<CXXMethodDecl>(Body)->getParent()->isLambda();
  // Outside of loops everything is replicated, and the body cannot tell more
  // than whether a number differs between processes.
  if (BatchDepth == 0 && !isHostNumber(E->getType()) && !Lambda) {
    Value Result;
    for (const Value &V : Values) {
      escape(V, E, "an argument of '" + F->getNameAsString() + "'");
      addOrigins(Result, V);
    }
    Result.MayHoldBatch = holdsTensors(E->getType());
    if (moduleOf(E->getType()))
      Result.Object = nullptr;
    return Result;
  }

  Environment Saved = Env;
  if (!Lambda)
    Env.clear();
  for (unsigned I = 0; I < Body->getNumParams(); ++I) {
    Value V = I < Values.size() ? Values[I] : Value();
    Env[Body->getParamDecl(I)] = {V, BatchDepth};
  }
  Value SavedThis = This;
  if (!Lambda)
    This = Self ? *Self : Value();
  const unsigned SavedConditions = Conditions;
  std::vector<Jumps> SavedLoops;
  std::swap(SavedLoops, Loops);
  Stack.push_back(Body);
  Returned.emplace_back();
  exec(Body->getBody());
  Value Result = Returned.back() ? *Returned.back() : Value();
  Returned.pop_back();
  Stack.pop_back();
  std::swap(SavedLoops, Loops);
  Conditions = SavedConditions;
  This = SavedThis;
  // What was written through references.
  std::vector<std::pair<const Expr *, Value>> Written;
  for (unsigned I = 0; I < Body->getNumParams() && I < Args.size(); ++I) {
    const ParmVarDecl *P = Body->getParamDecl(I);
    if (P->getType()->isReferenceType() &&
        !P->getType()->getPointeeType().isConstQualified())
      if (const Value &V = Env[P].V; !(V == Values[I]) && variableOf(Args[I]))
        Written.push_back({Args[I], V});
  }
  if (Lambda) {
    Environment Inner = std::move(Env);
    Env = std::move(Saved);
    for (auto &[Variable, S] : Env)
      if (auto It = Inner.find(Variable); It != Inner.end())
        S = It->second;
  } else {
    Env = std::move(Saved);
  }
  for (auto &[To, V] : Written)
    assign(To, V, E);
  if (Result.is(Placement::LocalSize))
    Result = number(Result);
  return Result;
}
