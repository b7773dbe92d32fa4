//===- Functions.cpp - Functions of the person's own, and unseen ones -----===//

#include "AstVisitor.h"
#include "Calls.h"

#include "TorchTypes.h"


using namespace accel::migrate;
using namespace clang;

/// Calls that are followed into each other; deeper ones are not understood.
static constexpr size_t MaxDepth = 16;

namespace {
/// Whether code refers to variables that are not replicated.
class CaptureFinder : public AstVisitor {
public:
  using Lookup = std::function<bool(const ValueDecl *)>;
  explicit CaptureFinder(Lookup IsLocal) : IsLocal(std::move(IsLocal)) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (IsLocal(E->getDecl()))
      Found = E;
    return !Found;
  }
  const DeclRefExpr *Found = nullptr;

private:
  Lookup IsLocal;
};
} // namespace

/// Printing, and waiting for time to pass.
static bool prints(const FunctionDecl *F) {
  if (!F->getIdentifier())
    return false;
  const std::string Name = qualifiedName(F);
  return llvm::StringRef(Name).starts_with("fmt::") ||
         llvm::StringRef(Name).starts_with("spdlog::") ||
         (isInStd(F) && (F->getName() == "print" || F->getName() == "println" ||
                         F->getName().starts_with("sleep_")));
}

/// Whether a library's function that gives no tensors may be given what one
/// device has, gathered: it saves, shows or measures it. One that changes it
/// would change a copy.
bool Interpreter::takesWhole(const FunctionDecl *F, const CallExpr *E,
                             unsigned I, unsigned Count) const {
  // What the person has written and is not seen here may do anything.
  if (!F || !F->getIdentifier() || Text.mayEdit(F->getLocation()) ||
      F->getName().ends_with("_") || holdsTensors(E->getType()))
    return false;
  if (isa<CXXMethodDecl>(F) && Count == F->getNumParams() + 1)
    return false;
  if (I >= F->getNumParams())
    return false;
  const QualType T = F->getParamDecl(I)->getType();
  return !T->isReferenceType() || T->getPointeeType().isConstQualified();
}

/// What a function whose body is not followed may have written through its
/// parameters: tensors that are the same on all processes, and of any shape.
void Interpreter::mayBeWritten(const FunctionDecl *F,
                               llvm::ArrayRef<const Expr *> Args,
                               const Expr *E) {
  if (!F)
    return;
  // A method's object may come first.
  if (isa<CXXMethodDecl>(F) && Args.size() == F->getNumParams() + 1)
    Args = Args.drop_front();
  for (unsigned I = 0; I < F->getNumParams() && I < Args.size(); ++I) {
    const QualType T = F->getParamDecl(I)->getType();
    if (!T->isLValueReferenceType() || T->getPointeeType().isConstQualified())
      continue;
    const ValueDecl *Variable = variableOf(Args[I]);
    auto Known = Variable ? Env.find(Variable) : Env.end();
    // Models are what they were, but for their numbers.
    if (Known == Env.end() || !holdsTensors(Variable->getType()) ||
        moduleOf(Variable->getType()) || optimizerOf(Variable->getType()) ||
        !Known->second.V.replicated())
      continue;
    Value Whole;
    Whole.MayHoldBatch = true;
    assign(Args[I], Whole, E);
  }
}

/// A function whose body is not to be seen.
Value Interpreter::evalForeign(const FunctionDecl *F, const CallExpr *E,
                               llvm::ArrayRef<const Expr *> Args,
                               llvm::ArrayRef<Value> Values) {
  const std::string Name =
      F ? "'" + F->getNameAsString() + "'" : "'" + spelled(E->getCallee()) + "'";
  Value Result;
  bool PerProcess = false;
  for (unsigned I = 0; I < Values.size(); ++I) {
    const Value V =
        takesWhole(F, E, I, Args.size()) && !Values[I].Assumed
            ? readOut(Values[I], Args[I])
            : Values[I];
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
    if (E->getType()->isVoidType() && !(F && (seeds(F) || prints(F))))
      refuse("ACL0127", E->getExprLoc(),
             "a value that differs between processes is given to " + Name,
             "Use a value that is the same on all processes.");
  }
  Result.MayHoldBatch = holdsTensors(E->getType());
  if (moduleOf(E->getType()) && !Values.empty())
    Result.Object = Values.front().Object;
  mayBeWritten(F, Args, E);
  return Result;
}

/// How many dimensions the tensors have, where that is known, and nothing else.
static void takeRanks(const Value &From, Value &To) {
  if (!From.replicated())
    return;
  To.Rank = From.Rank;
  To.MinRank = From.MinRank;
  for (const Value &Element : From.Elements) {
    Value V;
    V.MayHoldBatch = true;
    takeRanks(Element, V);
    To.Elements.push_back(std::move(V));
  }
}

/// What a function returns, for a look: nothing that it does is kept.
Value Interpreter::followedApart(const FunctionDecl *Body, const CallExpr *E,
                                 llvm::ArrayRef<const Expr *> Args,
                                 llvm::ArrayRef<Value> Values,
                                 const Value *Self) const {
  Interpreter Apart = *this;
  Effects Ignored;
  Apart.Out = &Ignored;
  return Apart.follow(Body, E, Args, Values, Self);
}

/// A function of the person's own: its body is followed.
Value Interpreter::evalOwn(const FunctionDecl *F, const CallExpr *E,
                           llvm::ArrayRef<const Expr *> Args,
                           llvm::ArrayRef<Value> Values, const Value *Self) {
  const FunctionDecl *Body = nullptr;
  if (Index.OfMainProcess.count(F->getCanonicalDecl())) {
    for (const Value &V : Values) {
      if (V.is(Placement::LocalSize))
        number(V);
      else if (V.is(Placement::PerProcess))
        refuse("ACL0127", E->getExprLoc(),
               "'" + F->getNameAsString() +
                   "' writes a value that differs between processes",
               "Use a value that is the same on all processes.");
      else
        understood(V, E);
    }
    return Value();
  }
  if (!F->hasBody(Body) || Stack.size() > MaxDepth ||
      llvm::is_contained(Stack, Body))
    return evalForeign(F, E, Args, Values);
  if (Index.runsBatches(Body)) {
    forgetLastBatch();
    for (const Value &V : Values)
      escape(V, E, "an argument of '" + F->getNameAsString() +
                       "', which runs a loop over batches of its own");
    if (Splits && Index.makesBatches(Body))
      refuse("ACL0179", E->getExprLoc(),
             "'" + F->getNameAsString() +
                 "' trains on batches of its own, while a batch of this loop is "
                 "being worked on",
             "Call it outside of the loop over batches.");
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
    for (unsigned I = 0; I < Values.size(); ++I) {
      const Value V =
          I < Args.size() ? readOut(Values[I], Args[I]) : Values[I];
      escape(V, E, "an argument of '" + F->getNameAsString() + "'");
      addOrigins(Result, V);
    }
    Result.MayHoldBatch = holdsTensors(E->getType());
    if (Result.MayHoldBatch && !inCallee())
      takeRanks(followedApart(Body, E, Args, Values, Self), Result);
    if (moduleOf(E->getType()))
      Result.Object = nullptr;
    mayBeWritten(F, Args, E);
    return Result;
  }

  return followOrGather(Body, E, Args, Values, Self);
}

/// The body is followed with what it is given; where that is not understood and
/// the function gives no tensors back, with tensors of the batch gathered: it
/// then works on what one device has.
Value Interpreter::followOrGather(const FunctionDecl *Body, const CallExpr *E,
                                  llvm::ArrayRef<const Expr *> Args,
                                  llvm::ArrayRef<Value> Values,
                                  const Value *Self) {
  std::vector<unsigned> ToGather;
  if (!inCallee() && BatchDepth > 0 && !holdsTensors(E->getType()))
    for (unsigned I = 0; I < Values.size() && I < Body->getNumParams(); ++I) {
      const QualType T = Body->getParamDecl(I)->getType();
      const bool Written = T->isReferenceType() &&
                           !T->getPointeeType().isConstQualified();
      if ((Values[I].plainRows() || Values[I].reduced()) && !Written &&
          isTensor(plain(Args[I])->getType()))
        ToGather.push_back(I);
    }
  if (ToGather.empty())
    return follow(Body, E, Args, Values, Self);

  const Environment Before = Env;
  const Effects Recorded = *Out;
  const Value Local = follow(Body, E, Args, Values, Self);
  if (Out->Refusals.size() == Recorded.Refusals.size() && !Local.unknown())
    return Local;
  Environment After = std::move(Env);
  Effects Refused = std::move(*Out);
  Env = Before;
  *Out = Recorded;
  std::vector<Value> Whole(Values.begin(), Values.end());
  for (unsigned I : ToGather) {
    Whole[I] = readOut(Values[I], Args[I]);
    Whole[I].Copy = true;
  }
  const Value Gathered = follow(Body, E, Args, Whole, Self);
  if (Out->Refusals.size() == Recorded.Refusals.size() && !Gathered.unknown())
    return Gathered;
  Env = std::move(After);
  *Out = std::move(Refused);
  return Local;
}

Value Interpreter::follow(const FunctionDecl *Body, const CallExpr *E,
                          llvm::ArrayRef<const Expr *> Args,
                          llvm::ArrayRef<Value> Values, const Value *Self) {
  const bool Lambda = isa<CXXMethodDecl>(Body) &&
                      cast<CXXMethodDecl>(Body)->getParent()->isLambda();
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
  std::vector<Jumps> SavedLoops;
  std::swap(SavedLoops, Loops);
  std::set<const ValueDecl *> SavedModes;
  std::swap(SavedModes, ModesSet);
  Stack.push_back(Body);
  Returned.emplace_back();
  exec(Body->getBody());
  Value Result = Returned.back() ? *Returned.back() : Value();
  Returned.pop_back();
  Stack.pop_back();
  std::swap(SavedLoops, Loops);
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
  std::swap(SavedModes, ModesSet);
  forgetModes(SavedModes);
  for (auto &[To, V] : Written)
    assign(To, V, E);
  if (Result.is(Placement::LocalSize))
    Result = number(Result);
  if (KeepsRows.count(Body) && !Result.unknown() && !Result.plainRows() &&
      llvm::any_of(Values, [](const Value &V) { return V.rows(); }))
    return unknown("ACL0121", E,
                   "'" + Body->getNameAsString() +
                       "' may be applied by a container in itself, and does not "
                       "return one row per sample");
  return Result;
}
