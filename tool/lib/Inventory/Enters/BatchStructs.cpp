//===- BatchStructs.cpp - Where structs of batches come to the step -------===//

#include "BatchOrigins.h"
#include "Together.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// The variable that another one names, or takes one of several structs out of:
/// `auto *a = std::get_if<A>(&any)`. Null where it has a value of its own.
static const VarDecl *namedBy(const VarDecl *V) {
  const Expr *E =
      V->isLocalVarDecl() && !isReassigned(V) ? plain(V->getInit()) : nullptr;
  const auto *Get = dyn_cast_or_null<CallExpr>(E);
  const llvm::StringRef Name = stdNameOf(calleeOf(Get));
  if ((Name == "get" || Name == "get_if") && Get->getNumArgs() == 1)
    E = plain(Get->getArg(0));
  else if (!V->getType()->isReferenceType())
    return nullptr;
  if (const auto *Address = dyn_cast_or_null<UnaryOperator>(E))
    E = plain(Address->getSubExpr());
  return varNamedBy(E);
}

/// The variable `batch` of `batch.states`; or null.
const VarDecl *BatchOrigins::structNamedBy(const Expr *E) {
  const auto *M = dyn_cast<MemberExpr>(plain(E));
  const VarDecl *V = M ? varNamedBy(M->getBase()) : nullptr;
  return V && (!M->isArrow() || namedBy(V)) ? V : nullptr;
}

/// `batch.states`, which a model reads: the struct is shared out where it comes to
/// the step. False where that is not possible.
bool BatchOrigins::shareStruct(const Expr *E, const FunctionDecl *F) {
  const VarDecl *V = structNamedBy(E);
  std::vector<Made> Structs;
  if (!V || StepsFirst || !structOf(V, F, Structs, /*Depth=*/0))
    return false;
  for (const Made &S : Structs)
    share(S.E, S.In);
  return true;
}

/// What a function assigns to the tensors of a struct: `batch.x = …`.
static std::vector<const Expr *> assignedToMembers(const VarDecl *V,
                                                   const FunctionDecl *F) {
  std::vector<const Expr *> Values;
  eachIn<CXXOperatorCallExpr>(F->getBody(), [&](const CXXOperatorCallExpr *E) {
    if (E->getOperator() != OO_Equal || E->getNumArgs() != 2 ||
        !isTensor(E->getArg(0)->getType()))
      return;
    const auto *M = dyn_cast<MemberExpr>(plain(E->getArg(0)));
    if (M && declNamedBy(M->getBase()) == V)
      Values.push_back(plain(E->getArg(1)));
  });
  return Values;
}

/// Whether a variable is a function's own, and no name of something else.
static bool isOwnVariable(const VarDecl *V) {
  return V->isLocalVarDecl() && !V->isStaticLocal() &&
         !V->getType()->isReferenceType() && !V->isCXXForRangeDecl();
}

/// A struct that a model is given, and writes into: `net->forward(batch)`, with a
/// Batch&. What the step puts into it is shared out there.
bool BatchOrigins::shareMembers(const VarDecl *V, const FunctionDecl *F) {
  if (!isNamedBatch(V->getType()) || !isOwnVariable(V) || StepsFirst ||
      !isInStep(V->getLocation(), F))
    return false;
  std::vector<const Expr *> Values = assignedToMembers(V, F);
  const Expr *Init = plain(V->getInit());
  if (const auto *List = dyn_cast_or_null<InitListExpr>(Init))
    llvm::copy_if(List->inits(), std::back_inserter(Values), [](const Expr *E) {
      return isTensor(E->getType()) && !isa<ImplicitValueInitExpr>(E);
    });
  else if (isa_and_nonnull<CallExpr>(Init) && !isa<CXXOperatorCallExpr>(Init))
    Values.push_back(Init);
  bool Any = false;
  for (const Expr *E : Values)
    if (!variablesNamedIn(E).count(V) && !callsModel(E) && !Loaded.in(E) &&
        !isNoBatch(E, Index.Context) && !isMadeOfGiven(E, F))
      Any |= share(E, F);
  return Any;
}

/// Where the steps make, or are given, what the struct `V` holds: in all of them.
bool BatchOrigins::structOf(const VarDecl *V, const FunctionDecl *F,
                            std::vector<Made> &Found, unsigned Depth) {
  constexpr unsigned Most = 4;
  if (Depth > Most)
    return false;
  if (const VarDecl *Whole = namedBy(V))
    return isOnlyRead(V, F) && structOf(Whole, F, Found, Depth + 1);
  if (!isNamedBatch(V->getType()))
    return false;
  if (const auto *P = dyn_cast<ParmVarDecl>(V))
    return structGivenTo(P, F, Found, Depth);
  const Expr *Init = plain(V->getInit());
  if (!isOwnVariable(V) || isReassigned(V) || !Init || callsModel(Init) ||
      Loaded.in(Init) || !isInStep(Init->getExprLoc(), F) || !isOnlyRead(V, F))
    return false;
  // Batch batch{x.index({rows}), y.index({rows})};
  if (const auto *List = dyn_cast<InitListExpr>(Init)) {
    const size_t Before = Found.size();
    for (const Expr *Each : List->inits())
      if (isTensor(Each->getType()) && !isa<ImplicitValueInitExpr>(Each) &&
          !isNoBatch(Each, Index.Context))
        Found.push_back({Each, F});
    return Found.size() > Before;
  }
  if (!isa<CallExpr>(Init) || isa<CXXOperatorCallExpr>(Init))
    return false;
  Found.push_back({Init, F});
  return true;
}

/// The same of a struct that a function of the program is given: by each step that
/// calls it.
bool BatchOrigins::structGivenTo(const ParmVarDecl *P, const FunctionDecl *F,
                                 std::vector<Made> &Found, unsigned Depth) {
  const auto *Of = dyn_cast<FunctionDecl>(P->getDeclContext());
  if (isWritableReference(P->getType()) || Given.count(Of) || isReassigned(P) ||
      !isOnlyRead(P, F))
    return false;
  bool Any = false;
  for (const auto &[E, In] : givenTo(P)) {
    const Expr *Arg = plain(E);
    if (!Arg || !isInStep(Arg->getExprLoc(), In))
      continue; // An evaluation.
    Any = true;
    if (Loaded.in(Arg))
      continue;
    const VarDecl *V = varNamedBy(Arg);
    if (V && structOf(V, In, Found, Depth + 1))
      continue;
    const std::optional<TextRange> R = Text.range(Arg->getSourceRange());
    if (callsModel(Arg) || (V && isa<ParmVarDecl>(V)) || !R ||
        llvm::StringRef(Text.text(Arg->getSourceRange())).starts_with("{"))
      return false;
    Found.push_back({Arg, In});
  }
  return Any;
}
