//===- Returned.cpp - What functions of the program return ----------------===//

#include "Returned.h"

#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

static const CallExpr *callIn(const Expr *E) {
  return dyn_cast_or_null<CallExpr>(E ? plain(E) : nullptr);
}

/// The call that a variable's value comes from.
static const CallExpr *callOf(const Expr *Whole) {
  if (const auto *Ref = dyn_cast<DeclRefExpr>(plain(Whole))) {
    const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
    return V && V->isLocalVarDecl() && !V->isStaticLocal() && !isReassigned(V)
               ? callIn(V->getInit())
               : nullptr;
  }
  return callIn(Whole);
}

std::optional<ReturnedValue>
accel::migrate::returnedValueOf(const Expr *E) {
  E = plain(E);
  const auto Of = [](const CallExpr *Call,
                     unsigned Index) -> std::optional<ReturnedValue> {
    if (!Call)
      return std::nullopt;
    return ReturnedValue{Call, Index};
  };
  if (const auto *Ref = dyn_cast<DeclRefExpr>(E)) {
    const auto *B = dyn_cast<BindingDecl>(Ref->getDecl());
    const auto *All =
        B ? dyn_cast_or_null<DecompositionDecl>(B->getDecomposedDecl())
          : nullptr;
    if (!All)
      return std::nullopt;
    unsigned Index = 0;
    for (const BindingDecl *Other : All->bindings()) {
      if (Other == B)
        return Of(callIn(All->getInit()), Index);
      ++Index;
    }
    return std::nullopt;
  }
  if (const auto *M = dyn_cast<MemberExpr>(E)) {
    const auto *Field = dyn_cast<FieldDecl>(M->getMemberDecl());
    const CXXRecordDecl *Pair =
        Field ? dyn_cast<CXXRecordDecl>(Field->getParent()) : nullptr;
    if (!Pair || !isInStd(Pair) || M->isArrow())
      return std::nullopt;
    return Of(callOf(M->getBase()), Field->getFieldIndex());
  }
  if (const auto *Get = dyn_cast<CallExpr>(E)) {
    const FunctionDecl *F = Get->getDirectCallee();
    if (!F || !isInStd(F) || nameOf(F) != "get" || Get->getNumArgs() != 1 ||
        !F->getTemplateSpecializationArgs())
      return std::nullopt;
    const TemplateArgument &Index = F->getTemplateSpecializationArgs()->get(0);
    if (Index.getKind() != TemplateArgument::Integral)
      return std::nullopt;
    return Of(callOf(Get->getArg(0)), Index.getAsIntegral().getZExtValue());
  }
  return std::nullopt;
}

std::optional<Tied>
accel::migrate::tiedOf(const CXXOperatorCallExpr *Assignment) {
  if (Assignment->getOperator() != OO_Equal)
    return std::nullopt;
  const CallExpr *Tie = callIn(Assignment->getArg(0));
  const FunctionDecl *F = Tie ? Tie->getDirectCallee() : nullptr;
  const CallExpr *Call = callIn(Assignment->getArg(1));
  if (!F || !Call || !isInStd(F) || nameOf(F) != "tie")
    return std::nullopt;
  Tied Result{Call, {}};
  for (const Expr *Arg : Tie->arguments()) {
    const auto *Ref = dyn_cast<DeclRefExpr>(plain(Arg));
    Result.Variables.push_back(Ref ? Ref->getDecl() : nullptr);
  }
  return Result;
}

/// The returns of a function, without those of lambdas in it.
static void findReturns(const Stmt *S,
                        llvm::SmallVectorImpl<const Expr *> &Values) {
  if (!S || isa<LambdaExpr>(S))
    return;
  if (const auto *Return = dyn_cast<ReturnStmt>(S))
    Values.push_back(Return->getRetValue());
  for (const Stmt *Child : S->children())
    findReturns(Child, Values);
}

llvm::SmallVector<const Expr *, 2>
accel::migrate::valuesOf(const FunctionDecl *Body) {
  llvm::SmallVector<const Expr *, 2> Values;
  findReturns(Body->getBody(), Values);
  return Values;
}

llvm::SmallVector<const Expr *, 2>
accel::migrate::returnedFrom(const FunctionDecl *Body, unsigned Index) {
  llvm::SmallVector<const Expr *, 2> Result;
  for (const Expr *Value : valuesOf(Body)) {
    Value = Value ? plain(Value) : nullptr;
    llvm::ArrayRef<const Expr *> Listed;
    if (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Value))
      Listed = llvm::ArrayRef(Made->getArgs(), Made->getNumArgs());
    else if (const auto *List = dyn_cast_or_null<InitListExpr>(Value))
      Listed = llvm::ArrayRef(List->getInits(), List->getNumInits());
    // std::make_pair(x, y), which converts to the type that is returned.
    const Expr *Only = Listed.size() == 1 ? plain(Listed[0]) : Value;
    if (const auto *Call = dyn_cast_or_null<CallExpr>(Only))
      if (const FunctionDecl *F = Call->getDirectCallee();
          F && isInStd(F) &&
          (nameOf(F) == "make_pair" || nameOf(F) == "make_tuple"))
        Listed = llvm::ArrayRef(Call->getArgs(), Call->getNumArgs());
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
                 givesMemory(F) || (isTorch(F) && Reads.count(nameOf(F))));
  });
}

const Expr *accel::migrate::leadingArgumentOf(const Expr *E,
                                              const ProgramIndex &Index) {
  const CallExpr *Call = callIn(E);
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  const FunctionDecl *Body = nullptr;
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
