//===- Fields.cpp - Batches that are rows of one tensor -------------------===//

#include "Fields.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

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
