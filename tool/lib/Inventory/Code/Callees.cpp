//===- Callees.cpp - What a piece of code runs ----------------------------===//

#include "Callees.h"

#include "Closures.h"
#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

bool Callees::VisitCallExpr(CallExpr *E) {
  add(E->getDirectCallee());
  for (const FunctionDecl *Body : Index.callablesOf(E))
    addBody(Body);
  return true;
}

bool Callees::VisitCXXConstructExpr(CXXConstructExpr *E) {
  add(E->getConstructor());
  return true;
}

void Callees::add(const FunctionDecl *F) {
  if (!F || isLibrary(F))
    return;
  for (const FunctionDecl *Body : Index.bodiesOf(F))
    addBody(Body);
}

void Callees::addBody(const FunctionDecl *Body) {
  if (!Found.insert(Body).second)
    return;
  enter(Body);
  TraverseStmt(Body->getBody());
}

bool CalleesBeforeMain::VisitCallExpr(CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  // std::for_each, std::call_once; push_back only keeps it.
  if (isLibrary(F) && !isa<CXXMemberCallExpr>(E))
    for (const Expr *Arg : E->arguments())
      if (const auto *L = dyn_cast<LambdaExpr>(Arg->IgnoreImplicit()))
        addBody(operatorOf(L));
  if (stdNameOf(F).starts_with("make_"))
    constructsIn(F->getReturnType());
  return Callees::VisitCallExpr(E);
}

bool CalleesBeforeMain::VisitCXXConstructExpr(CXXConstructExpr *E) {
  constructs(E->getConstructor());
  // std::vector<Agent> agents(2), std::optional<Agent> agent(std::in_place)
  if (isInStd(E->getConstructor()) && E->getNumArgs() > 0) {
    const QualType First = E->getArg(0)->getType();
    if (First->isIntegerType() || nameOf(recordOf(First)) == "in_place_t")
      constructsIn(E->getType());
  }
  return true;
}

void CalleesBeforeMain::enter(const FunctionDecl *F) {
  for (const CXXCtorInitializer *Init : initsOf(F))
    TraverseStmt(Init->getInit());
}

/// A constructor, or what one that nobody has written initialises.
void CalleesBeforeMain::constructs(const CXXConstructorDecl *Ctor) {
  if (Ctor->isUserProvided())
    return add(Ctor);
  if (isLibrary(Ctor) || !Found.insert(Ctor).second)
    return;
  for (const FieldDecl *Field : Ctor->getParent()->fields())
    if (const Expr *Init = Field->getInClassInitializer())
      TraverseStmt(const_cast<Expr *>(Init));
    else if (const CXXRecordDecl *D = recordOf(Field->getType());
             D && !isInStd(D) && !Field->getType()->isPointerType())
      constructsIn(Field->getType());
}

/// The library makes an object of the program's class that `T` holds.
void CalleesBeforeMain::constructsIn(QualType T, unsigned Depth) {
  const CXXRecordDecl *D = recordOf(T);
  D = D ? D->getDefinition() : nullptr;
  constexpr unsigned Most = 3;
  if (!D || Depth > Most)
    return;
  if (isa<ClassTemplateSpecializationDecl>(D) && isInStd(D)) {
    if (nameOf(D) != "function")
      for (const QualType Arg : typeArgumentsOf(D))
        constructsIn(Arg, Depth + 1);
    return;
  }
  for (const CXXConstructorDecl *Ctor : D->ctors())
    if (!Ctor->isCopyOrMoveConstructor())
      constructs(Ctor);
}
