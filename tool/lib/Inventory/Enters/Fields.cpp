//===- Fields.cpp - Rows of tensors, and batches that are such ------------===//

#include "Fields.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

Row accel::migrate::rowOf(const Expr *E, const ASTContext &Context) {
  if (const auto *O = operatorCall(E, OO_Subscript);
      O && isTensor(O->getArg(0)->getType()) &&
      O->getArg(1)->getType()->isIntegerType())
    return {O->getArg(0), O->getArg(1)};
  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
      torchNameOf(Member) == "select" &&
      constantOf(Member->getArg(0), Context) == 0)
    return {Member->getImplicitObjectArgument(), Member->getArg(1)};
  return {};
}

bool accel::migrate::isField(const Expr *E, const ASTContext &Context) {
  const VarDecl *Of = varNamedBy(rowOf(plain(E), Context).Tensor);
  const auto *F =
      Of ? dyn_cast_or_null<FunctionDecl>(Of->getParentFunctionOrMethod())
         : nullptr;
  if (!F || !F->hasBody())
    return false;
  // By which numbers the function takes rows out of the variable.
  std::set<int64_t> Numbers;
  const bool ByOthers = anyIn<CallExpr>(F->getBody(), [&](const CallExpr *Call) {
    const Row Taken = rowOf(Call, Context);
    if (varNamedBy(Taken.Tensor) != Of)
      return false;
    const std::optional<int64_t> Number = constantOf(Taken.Number, Context);
    if (Number)
      Numbers.insert(*Number);
    return !Number;
  });
  return !ByOthers && Numbers.size() > 1;
}
