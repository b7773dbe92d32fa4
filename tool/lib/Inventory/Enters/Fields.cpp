//===- Fields.cpp - Batches that are rows of one tensor -------------------===//

#include "Fields.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

namespace {
/// A row that is taken out of a tensor: of which variable, and by which index.
struct Row {
  const VarDecl *Of = nullptr;
  const Expr *Index = nullptr;
};
} // namespace

static Row rowOf(const Expr *E, const ASTContext &Context) {
  const Expr *Tensor = nullptr, *Index = nullptr;
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E)) {
    if (O->getOperator() == OO_Subscript &&
        O->getArg(1)->getType()->isIntegerType()) {
      Tensor = O->getArg(0);
      Index = O->getArg(1);
    }
  } else if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
    if (torchNameOf(Member) == "select" && Member->getNumArgs() == 2 &&
        constantOf(Member->getArg(0), Context) == 0) {
      Tensor = Member->getImplicitObjectArgument();
      Index = Member->getArg(1);
    }
  }
  const auto *Ref = Tensor ? dyn_cast<DeclRefExpr>(plain(Tensor)) : nullptr;
  const auto *V = Ref ? dyn_cast<VarDecl>(Ref->getDecl()) : nullptr;
  return V && isTensor(V->getType()) ? Row{V, Index} : Row();
}

bool accel::migrate::isField(const Expr *E, const ASTContext &Context) {
  const Row R = rowOf(plain(E), Context);
  const auto *F =
      R.Of ? dyn_cast_or_null<FunctionDecl>(R.Of->getParentFunctionOrMethod())
           : nullptr;
  if (!F || !F->hasBody())
    return false;
  // By which numbers the function takes rows out of the variable.
  std::set<int64_t> Numbers;
  const bool ByOthers = anyIn<CallExpr>(F->getBody(), [&](const CallExpr *Call) {
    const Row Taken = rowOf(Call, Context);
    if (Taken.Of != R.Of)
      return false;
    const std::optional<int64_t> Number = constantOf(Taken.Index, Context);
    if (Number)
      Numbers.insert(*Number);
    return !Number;
  });
  return !ByOthers && Numbers.size() > 1;
}
