//===- Functions.cpp - Functions of the person's own, and unseen ones -----===//

#include "Calls.h"

#include "TorchTypes.h"

#include "clang/AST/RecursiveASTVisitor.h"

using namespace accel::migrate;
using namespace clang;

/// Calls that are followed into each other; deeper ones are not understood.
static constexpr size_t MaxDepth = 16;

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
    if (E->getType()->isVoidType() && !(F && (seeds(F) || prints(F))))
      refuse("ACL0127", E->getExprLoc(),
             "a value that differs between processes is given to " + Name,
             "Use a value that is the same on all processes.");
  }
  Result.MayHoldBatch = holdsTensors(E->getType());
  if (moduleOf(E->getType()) && !Values.empty())
    Result.Object = Values.front().Object;
  return Result;
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
                   "'" + F->getNameAsString() +
                       "' may be applied by a container in itself, and does not "
                       "return one row per sample");
  return Result;
}
