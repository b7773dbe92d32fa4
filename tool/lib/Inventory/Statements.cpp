//===- Statements.cpp - Runs through statements ---------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

Effects Interpreter::interpret(const FunctionDecl *F) {
  Effects Result;
  Out = &Result;
  Stack.push_back(F);
  Returned.emplace_back();
  if (const auto *M = dyn_cast<CXXMethodDecl>(F);
      M && isOrDerives(M->getParent(), "torch::nn::Module"))
    This.Object = M;
  InParts = Index.stepsAlone(F);
  exec(F->getBody());
  if (const std::optional<Value> &V = Returned.back()) {
    if (const Value *Bad = firstUnknown(*V))
      refuse(Bad->Why);
    else if (!V->replicated() && !V->is(Placement::PerProcess))
      refuse("ACL0128", F->getLocation(),
             "the function '" + F->getNameAsString() +
                 "' returns a tensor of this process's part of a batch",
             "Return a number read with item(), or gather the tensor first.");
  }
  Returned.pop_back();
  Stack.pop_back();
  Out = nullptr;
  return Result;
}

Interpreter::Environment Interpreter::joined(const Environment &A,
                                             const Environment &B,
                                             SourceLocation Loc) {
  Environment Result = A;
  for (auto &[Variable, InA] : Result)
    if (!B.count(Variable))
      InA.V.Evaluates = false;
  for (const auto &[Variable, InB] : B) {
    auto [It, New] = Result.try_emplace(Variable, InB);
    if (New) {
      It->second.V.Evaluates = false;
      continue;
    }
    if (It->second.V == InB.V)
      continue;
    // What is declared in a pass and set on one way only: nobody reads it where
    // it is not set. Outside of the pass it would be of another batch.
    if (BatchDepth > 0 && InB.Depth >= BatchDepth) {
      if (InB.V.empty())
        continue;
      if (It->second.V.empty()) {
        It->second.V = InB.V;
        continue;
      }
    }
    It->second.V = join(
        It->second.V, InB.V,
        reason("ACL0128", Variable->getLocation(),
               "'" + Variable->getNameAsString() +
                   "' holds something of this process's part of a batch on one "
                   "way through the program and something else on another",
               "Compute it anew in every pass of the loop, or gather it "
               "first."));
  }
  return Result;
}

bool Interpreter::same(const Environment &A, const Environment &B) {
  if (A.size() != B.size())
    return false;
  for (auto ItA = A.begin(), ItB = B.begin(); ItA != A.end(); ++ItA, ++ItB)
    if (ItA->first != ItB->first || !(ItA->second.V == ItB->second.V))
      return false;
  return true;
}

void Interpreter::declare(const VarDecl *D, Value V) {
  if (!inCallee())
    V.Roots.clear();
  if (V.replicated() && !V.Object && moduleOf(D->getType()))
    V.Object = D;
  if (!D->getType().isConstQualified() && !V.is(Placement::LocalSize))
    V.Constant.reset();
  if (const auto *Parts = dyn_cast<DecompositionDecl>(D)) {
    unsigned I = 0;
    for (const BindingDecl *B : Parts->bindings())
      Env[B] = {V.element(I++), BatchDepth};
  }
  Env[D] = {std::move(V), BatchDepth};
}

Interpreter::Flow Interpreter::execBlock(const CompoundStmt *S) {
  const bool IsBatchBody = S == BatchBody && !inCallee();
  for (const Stmt *Child : S->body()) {
    if (IsBatchBody) {
      Top = Child;
      if (Plan && Plan->At == Child)
        startPlan();
    }
    if (exec(Child) == Flow::Ends)
      return Flow::Ends;
  }
  return Flow::Next;
}

Value Interpreter::condition(const Expr *E, const Stmt *Controls) {
  if (!E)
    return Value();
  Value V = eval(E);
  if (V.is(Placement::LocalSize))
    V = number(V);
  if (V.replicated())
    return V;
  if (V.unknown() && V.Why && V.Why->Id != "ACL0127") {
    refuse(V.Why);
    return Value();
  }
  if (V.is(Placement::PerProcess) && Differs.in(E)) {
    if (!Differs.mustAgree(E, Controls, Stack.back()))
      return V;
    if (Text.mayEdit(E->getExprLoc()))
      return Value();
  }
  refuse("ACL0127", E->getExprLoc(),
         "the condition '" + spelled(E) +
             "' can be true on one process and false on another, which then "
             "wait for each other",
         "Decide on one process and broadcast the decision, or on a value "
         "that is read from a mean or a sum over the batch.");
  return Value();
}

Interpreter::Flow Interpreter::exec(const Stmt *S) {
  if (!S)
    return Flow::Next;
  if (const auto *E = dyn_cast<Expr>(S)) {
    const Value V = eval(E);
    // A value that nobody takes does not matter, but what was done to get it
    // does; that was recorded on the way.
    (void)V;
    if (isa<CXXThrowExpr>(plain(E)))
      return Flow::Ends;
    if (const FunctionDecl *F = calleeOf(plain(E)))
      if (F->isNoReturn())
        return Flow::Ends;
    return Flow::Next;
  }
  auto Found = Index.Loops.find(S);
  if (Found != Index.Loops.end()) {
    execBatchLoop(S, Found->second);
    return Flow::Next;
  }
  switch (S->getStmtClass()) {
  case Stmt::CompoundStmtClass:
    return execBlock(cast<CompoundStmt>(S));
  case Stmt::NullStmtClass:
    return Flow::Next;
  case Stmt::AttributedStmtClass:
    return exec(cast<AttributedStmt>(S)->getSubStmt());
  case Stmt::DeclStmtClass:
    for (const Decl *D : cast<DeclStmt>(S)->decls())
      if (const auto *V = dyn_cast<VarDecl>(D)) {
        Value Init = V->getInit() ? eval(V->getInit()) : Value();
        if (V->isStaticLocal() && !Init.replicated())
          escape(Init, V->getInit(), "the static variable '" +
                                         V->getNameAsString() + "'");
        declare(V, std::move(Init));
      }
    return Flow::Next;
  case Stmt::IfStmtClass: {
    const auto *If = cast<IfStmt>(S);
    exec(If->getInit());
    exec(If->getConditionVariableDeclStmt());
    condition(If->getCond(), If);
    if (If->isConstexpr())
      if (const auto *Value = dyn_cast<ConstantExpr>(If->getCond());
          Value && Value->hasAPValueResult())
        return exec(Value->getAPValueResult().getInt().getBoolValue()
                        ? If->getThen()
                        : If->getElse());
    const Environment Before = Env;
    const Flow Then = exec(If->getThen());
    Environment AfterThen = std::move(Env);
    Env = Before;
    const Flow Else = exec(If->getElse());
    if (Then == Flow::Ends && Else == Flow::Ends)
      return Flow::Ends;
    if (Else == Flow::Ends)
      Env = std::move(AfterThen);
    else if (Then == Flow::Next)
      Env = joined(AfterThen, Env, S->getBeginLoc());
    return Flow::Next;
  }
  case Stmt::ForStmtClass:
  case Stmt::WhileStmtClass:
  case Stmt::DoStmtClass:
  case Stmt::CXXForRangeStmtClass:
    execLoop(S);
    return Flow::Next;
  case Stmt::SwitchStmtClass:
    execSwitch(cast<SwitchStmt>(S));
    return Flow::Next;
  case Stmt::CaseStmtClass:
  case Stmt::DefaultStmtClass:
    return exec(cast<SwitchCase>(S)->getSubStmt());
  case Stmt::BreakStmtClass:
    if (!Loops.empty())
      Loops.back().Breaks.push_back(Env);
    return Flow::Ends;
  case Stmt::ContinueStmtClass:
    if (!Loops.empty())
      Loops.back().Continues.push_back(Env);
    return Flow::Ends;
  case Stmt::ReturnStmtClass: {
    const Expr *E = cast<ReturnStmt>(S)->getRetValue();
    Value V = E ? eval(E) : Value();
    if (V.is(Placement::LocalSize))
      V = number(V);
    if (!Returned.empty()) {
      std::optional<Value> &R = Returned.back();
      R = R ? join(*R, V,
                   reason("ACL0100", S->getBeginLoc(),
                          "the function returns a part of the batch on one way "
                          "and something else on another"))
            : V;
    }
    return Flow::Ends;
  }
  case Stmt::CXXTryStmtClass: {
    // Handlers that go on are refused elsewhere (Hazards.cpp).
    const auto *Try = cast<CXXTryStmt>(S);
    const Flow Result = exec(Try->getTryBlock());
    const Environment After = Env;
    for (unsigned I = 0; I < Try->getNumHandlers(); ++I) {
      exec(Try->getHandler(I)->getHandlerBlock());
      Env = After;
    }
    return Result;
  }
  default:
    if (BatchDepth > 0)
      refuse("ACL0100", S->getBeginLoc(),
             std::string("a statement of the kind ") + S->getStmtClassName() +
                 " in a loop over batches is not understood",
             "Write the loop body without it.");
    else
      for (const Stmt *Child : S->children())
        exec(Child);
    return Flow::Next;
  }
}

void Interpreter::execSwitch(const SwitchStmt *S) {
  exec(S->getInit());
  exec(S->getConditionVariableDeclStmt());
  condition(S->getCond(), S);
  Loops.emplace_back();
  const Environment Before = Env;
  // Each case on its own, from before; falling through is joined in.
  if (const auto *Body = dyn_cast<CompoundStmt>(S->getBody()))
    for (const Stmt *Child : Body->body()) {
      if (isa<SwitchCase>(Child))
        Env = joined(Before, Env, Child->getBeginLoc());
      exec(Child);
    }
  else
    exec(S->getBody());
  Env = joined(Before, Env, S->getBeginLoc());
  for (const Environment &E : Loops.back().Breaks)
    Env = joined(Env, E, S->getBeginLoc());
  // A `continue` in a switch belongs to the loop around it.
  std::vector<Environment> Continues = std::move(Loops.back().Continues);
  Loops.pop_back();
  if (!Loops.empty())
    for (Environment &E : Continues)
      Loops.back().Continues.push_back(std::move(E));
}

/// Runs `Iteration` from joined environments until they do not change, without
/// recording; then once more, recording. `KeepsLast`: what each pass sets anew
/// is, behind the loop, that of the last pass. (Where there was none, a value of
/// before is taken for it, which the runtime gives as it is.)
void Interpreter::loopUntilStable(const std::function<void()> &Iteration,
                                  bool KeepsLast) {
  Effects *Recording = Out;
  Environment Head = Env;
  for (int Round = 0; Round < 6; ++Round) {
    Effects Scratch;
    Out = &Scratch;
    Env = Head;
    Loops.emplace_back();
    Iteration();
    // What a state is in the first pass only is what matters of it.
    for (const StateVariable &State : Scratch.WholeStates)
      if (!llvm::is_contained(Recording->WholeStates, State))
        Recording->WholeStates.push_back(State);
    for (const Environment &E : Loops.back().Continues)
      Env = joined(Env, E, {});
    Loops.pop_back();
    Environment Next = joined(Head, Env, {});
    // What is declared inside is new in each pass.
    for (auto It = Next.begin(); It != Next.end();)
      It = Head.count(It->first) ? std::next(It) : Next.erase(It);
    const bool Stable = same(Head, Next);
    Head = std::move(Next);
    if (Stable)
      break;
  }
  Out = Recording;
  Env = Head;
  Loops.emplace_back();
  Iteration();
  Jumps Last = std::move(Loops.back());
  Loops.pop_back();
  for (const Environment &E : Last.Continues)
    Env = joined(Env, E, {});
  for (const Environment &E : Last.Breaks)
    Env = joined(Env, E, {});
  const Environment AfterPass = Env;
  Env = joined(Head, Env, {});
  if (KeepsLast)
    for (auto &[Variable, Slot] : Env)
      if (auto It = AfterPass.find(Variable);
          It != AfterPass.end() && (It->second.V.rows() || It->second.V.reduced()))
        Slot.V = It->second.V;
  for (auto It = Env.begin(); It != Env.end();)
    It = Head.count(It->first) ? std::next(It) : Env.erase(It);
}

void Interpreter::execLoop(const Stmt *S) {
  if (const auto *For = dyn_cast<ForStmt>(S)) {
    exec(For->getInit());
    loopUntilStable([&] {
      exec(For->getConditionVariableDeclStmt());
      condition(For->getCond(), For);
      exec(For->getBody());
      exec(For->getInc());
    });
  } else if (const auto *While = dyn_cast<WhileStmt>(S)) {
    loopUntilStable([&] {
      exec(While->getConditionVariableDeclStmt());
      condition(While->getCond(), While);
      exec(While->getBody());
    });
  } else if (const auto *Do = dyn_cast<DoStmt>(S)) {
    loopUntilStable([&] {
      exec(Do->getBody());
      condition(Do->getCond(), Do);
    });
  } else if (const auto *Range = dyn_cast<CXXForRangeStmt>(S)) {
    exec(Range->getInit());
    const Value Over = eval(Range->getRangeInit());
    Value Each = Over.element(0);
    for (const Value &V : Over.Elements)
      Each = join(Each, V,
                  reason("ACL0100", Range->getBeginLoc(),
                         "the elements of '" + spelled(Range->getRangeInit()) +
                             "' are not all alike"));
    // The number of passes would be this process's number of rows.
    if (Over.rows() && isTensor(Range->getRangeInit()->getType()))
      Each = unknown("ACL0100", Range->getRangeInit(),
                     "the loop goes over single samples of this process's part "
                     "of the batch");
    loopUntilStable([&] {
      declare(Range->getLoopVariable(), Each);
      exec(Range->getBody());
    });
  }
}
