//===- Losses.cpp - What backward is called on ----------------------------===//

#include "Losses.h"

#include "AstVisitor.h"
#include "ModelCalls.h"
#include "ProgramIndex.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// Whether a call changes a variable, or what it refers to: assigns to it, or gives it
/// another element.
static bool changes(const CallExpr *E, const ValueDecl *V) {
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E))
    return O->isAssignmentOp() && rootOf(O->getArg(0)) == V;
  const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
  const llvm::StringRef Name = Member ? stdNameOf(calleeOf(E)) : "";
  return (Name.contains("push") || Name.contains("emplace") ||
          Name == "insert") &&
         rootOf(Member->getImplicitObjectArgument()) == V;
}

const ValueDecl *accel::migrate::lossOf(const Expr *E) {
  E = plain(E);
  while (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
    const bool IsElement = O->getOperator() == OO_Subscript ||
                           O->getOperator() == OO_Arrow ||
                           (O->getOperator() == OO_Star && O->getNumArgs() == 1);
    if (!IsElement || isTensor(O->getArg(0)->getType()))
      return nullptr;
    E = plain(O->getArg(0));
  }
  return declNamedBy(E);
}

/// The variables that hold the losses which an expression chooses from: `{a, b}`,
/// `losses[i]`, `first ? a : b`. False if it is anything else.
static bool chosenFrom(const Expr *E, std::vector<const ValueDecl *> &From) {
  E = plain(E);
  const auto All = [&](auto Range) {
    return llvm::all_of(Range, [&](const Stmt *S) {
      return chosenFrom(cast<Expr>(S), From);
    });
  };
  if (const auto *List = dyn_cast<CXXStdInitializerListExpr>(E))
    return chosenFrom(List->getSubExpr(), From);
  if (const auto *List = dyn_cast<InitListExpr>(E))
    return List->getNumInits() > 0 && All(List->inits());
  if (const auto *Either = dyn_cast<ConditionalOperator>(E))
    return All(llvm::ArrayRef({Either->getTrueExpr(), Either->getFalseExpr()}));
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E);
      Made && isInStd(Made->getConstructor()))
    return Made->getNumArgs() > 0 && chosenFrom(Made->getArg(0), From);
  const ValueDecl *V = lossOf(E);
  if (V)
    From.push_back(V);
  return V;
}

bool accel::migrate::isMadeBefore(const ValueDecl *V, const Stmt *Loop,
                                  const SourceManager &SM) {
  const auto *Variable = dyn_cast_or_null<VarDecl>(V);
  if (!Variable)
    return false;
  if (isWithin(V->getLocation(), Loop, SM)) {
    const auto *Range = dyn_cast<CXXForRangeStmt>(Loop);
    const Expr *Init = Range && Range->getLoopVariable() == V
                           ? Range->getRangeInit()
                           : Variable->getInit();
    std::vector<const ValueDecl *> From;
    return Init && chosenFrom(Init, From) &&
           llvm::all_of(From, [&](const ValueDecl *Loss) {
             return isMadeBefore(Loss, Loop, SM);
           });
  }
  return !anyIn<CallExpr>(
      Loop, [&](const CallExpr *E) { return changes(E, V); });
}
