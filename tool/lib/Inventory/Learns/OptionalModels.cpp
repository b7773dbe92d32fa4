//===- OptionalModels.cpp - Models that there may not be ------------------===//

#include "OptionalModels.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::asksFor(const Stmt *S, const ValueDecl *Model) {
  const auto Names = [&](const Stmt *Part) {
    const auto *E = dyn_cast_or_null<Expr>(Part);
    return E && placeOf(E) == Model;
  };
  return anyIn<Expr>(S, [&](const Expr *E) {
    if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
        Call && (nameOf(Call->getMethodDecl()) == "is_empty" ||
                 nameOf(Call->getMethodDecl()) == "has_value"))
      return Names(Call->getImplicitObjectArgument());
    const auto *Cast = dyn_cast<CastExpr>(E);
    const bool ToTruth = Cast && Cast->getType()->isBooleanType();
    const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E);
    const auto *Binary = dyn_cast<BinaryOperator>(E);
    const bool Compares = (Operator && Operator->isComparisonOp()) ||
                          (Binary && Binary->isEqualityOp());
    if (ToTruth)
      if (const auto *Call =
              dyn_cast<CXXMemberCallExpr>(Cast->getSubExpr()->IgnoreImplicit());
          Call && isa<CXXConversionDecl>(Call->getMethodDecl()) &&
          Names(Call->getImplicitObjectArgument()))
        return true;
    return (ToTruth || Compares) && llvm::any_of(E->children(), Names);
  });
}

/// `{nullptr}`, `= nullptr`, or a pointer and a std::optional without a value. (A module's
/// holder without one makes the module.)
static bool isEmpty(const Expr *Init, QualType T) {
  Init = plain(Init);
  const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Init);
  if (Made && Made->getNumArgs() == 1)
    return isa<CXXNullPtrLiteralExpr>(plain(Made->getArg(0)));
  if (!Init || (Made && Made->getNumArgs() == 0))
    return isInStd(recordOf(T)) || T->isPointerType();
  return isa<CXXNullPtrLiteralExpr>(Init);
}

namespace {
/// Whether a model is given a value, and always where it is.
class Assignments : public AstAncestorVisitor {
public:
  explicit Assignments(const ValueDecl *Model) : Model(Model) {}
  bool Any = false, Always = false;

  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->getOperator() == OO_Equal)
      made(E->getArg(0));
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    const llvm::StringRef Name = nameOf(E->getMethodDecl());
    if ((Name == "emplace" || Name == "reset") && E->getNumArgs() > 0)
      made(E->getImplicitObjectArgument());
    return true;
  }

private:
  void made(const Expr *E) {
    if (placeOf(E) != Model)
      return;
    Any = true;
    Always |= llvm::none_of(
        Path, [](const Stmt *S) { return isa<IfStmt, SwitchStmt>(S); });
  }

  const ValueDecl *Model;
};
} // namespace

bool accel::migrate::isOptional(const ValueDecl *Model,
                                const ProgramIndex &Index) {
  const auto *V = dyn_cast<VarDecl>(Model);
  const auto *Field = dyn_cast<FieldDecl>(Model);
  if (!(V && V->isLocalVarDecl() && isEmpty(V->getInit(), V->getType())) &&
      !(Field && isEmpty(Field->getInClassInitializer(), Field->getType())))
    return false;
  Assignments Made(Model);
  bool Asked = false;
  for (const FunctionDecl *F : Index.Functions) {
    Made.TraverseStmt(F->getBody());
    Asked = Asked || asksFor(F->getBody(), Model);
  }
  return Asked && Made.Any && !Made.Always;
}
