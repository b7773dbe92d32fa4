//===- Returned.cpp - What functions of the program return ----------------===//

#include "Returned.h"

#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

static const CallExpr *callIn(const Expr *E) {
  return dyn_cast_or_null<CallExpr>(plain(E));
}

/// The call that a variable's value comes from.
static const CallExpr *callOf(const Expr *Whole) {
  const VarDecl *V = varNamedBy(Whole);
  if (!V)
    return callIn(Whole);
  return V->isLocalVarDecl() && !V->isStaticLocal() && !isReassigned(V)
             ? callIn(V->getInit())
             : nullptr;
}

std::optional<ReturnedValue>
accel::migrate::returnedValueOf(const Expr *E) {
  E = plain(E);
  ReturnedValue Result;
  if (const auto *B = dyn_cast_or_null<BindingDecl>(declNamedBy(E))) {
    const auto *All =
        dyn_cast_or_null<DecompositionDecl>(B->getDecomposedDecl());
    if (!All)
      return std::nullopt;
    Result.Call = callIn(All->getInit());
    Result.Index = llvm::find(All->bindings(), B) - All->bindings().begin();
  } else if (const auto *M = dyn_cast<MemberExpr>(E)) {
    const auto *Field = dyn_cast<FieldDecl>(M->getMemberDecl());
    if (!Field || !isInStd(Field->getParent()) || M->isArrow())
      return std::nullopt;
    Result.Call = callOf(M->getBase());
    Result.Index = Field->getFieldIndex();
  } else if (const FunctionDecl *F = calleeOf(E);
             stdNameOf(F) == "get" && F->getTemplateSpecializationArgs() &&
             cast<CallExpr>(E)->getNumArgs() == 1) {
    const TemplateArgument &I = F->getTemplateSpecializationArgs()->get(0);
    if (I.getKind() != TemplateArgument::Integral)
      return std::nullopt;
    Result.Call = callOf(cast<CallExpr>(E)->getArg(0));
    Result.Index = I.getAsIntegral().getZExtValue();
  }
  return Result.Call ? std::optional(Result) : std::nullopt;
}

std::optional<Tied>
accel::migrate::tiedOf(const CXXOperatorCallExpr *Assignment) {
  if (Assignment->getOperator() != OO_Equal)
    return std::nullopt;
  const CallExpr *Tie = callIn(Assignment->getArg(0));
  const CallExpr *Call = callIn(Assignment->getArg(1));
  if (!Call || stdNameOf(calleeOf(Tie)) != "tie")
    return std::nullopt;
  Tied Result{Call, {}};
  for (const Expr *Arg : Tie->arguments())
    Result.Variables.push_back(declNamedBy(Arg));
  return Result;
}

llvm::SmallVector<const Expr *, 2>
accel::migrate::returnedFrom(const FunctionDecl *Body, unsigned Index) {
  llvm::SmallVector<const Expr *, 2> Result;
  for (const Expr *Value : valuesOf(Body)) {
    Value = plain(Value);
    llvm::ArrayRef<const Expr *> Listed;
    if (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Value))
      Listed = llvm::ArrayRef(Made->getArgs(), Made->getNumArgs());
    else if (const auto *List = dyn_cast_or_null<InitListExpr>(Value))
      Listed = llvm::ArrayRef(List->getInits(), List->getNumInits());
    // std::make_pair(x, y), which converts to the type that is returned.
    const Expr *Only = Listed.size() == 1 ? plain(Listed[0]) : Value;
    const llvm::StringRef Maker = stdNameOf(calleeOf(Only));
    if (Maker == "make_pair" || Maker == "make_tuple")
      Listed = passedBy(cast<CallExpr>(Only));
    if (Index >= Listed.size() || !isTensor(Listed[Index]->getType()))
      return {};
    Result.push_back(Listed[Index]);
  }
  return Result;
}

/// Reads elements or rows of tensors, whose number or memory is asked for.
static bool readsElements(const Stmt *S) {
  static const llvm::StringSet<> Reads = {
      "item",   "select", "index", "slice", "narrow",
      "unbind", "split",  "chunk", "cpu"};
  return existsIn(S, [](const Stmt *Part) {
    const auto *Call = dyn_cast<CallExpr>(Part);
    const FunctionDecl *F = calleeOf(Call);
    return F && ((F->getOverloadedOperator() == OO_Subscript &&
                  isTensor(Call->getArg(0)->getType())) ||
                 givesMemory(F) || Reads.count(torchNameOf(F)));
  });
}

const Expr *accel::migrate::leadingArgumentOf(const Expr *E,
                                              const ProgramIndex &Index) {
  const CallExpr *Call = callIn(E);
  const FunctionDecl *F = calleeOf(Call), *Body = nullptr;
  if (!F || !isTensor(Call->getType()) || isa<CXXOperatorCallExpr>(Call) ||
      !F->hasBody(Body) || !Index.isOwn(Body) || callsModel(Body->getBody()) ||
      readsElements(Body->getBody()))
    return nullptr;
  const Expr *First = nullptr;
  bool Several = false;
  for (const Expr *Arg : Call->arguments())
    if (holdsTensors(Arg->getType())) {
      Several |= First || !isTensor(Arg->getType());
      First = First ? First : Arg;
    }
  if (!First || !isTensor(First->getType()) ||
      (Several && !isa<DeclRefExpr>(plain(First))))
    return nullptr;
  return First;
}
