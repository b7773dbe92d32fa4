//===- Loaders.cpp - What loaders give ------------------------------------===//

#include "ProgramIndex.h"

#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isExample(QualType T) {
  const auto *D =
      dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(T));
  return D && D->getName() == "Example" && isTorch(D) &&
         isTensor(D->getTemplateArgs()[0].getAsType());
}

/// The iterator that a loader's begin() returns.
static bool isLoaderIterator(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  return D && D->getIdentifier() && D->getName() == "Iterator" &&
         llvm::StringRef(qualifiedName(D)).starts_with("torch::data::");
}

bool accel::migrate::readsBatch(const Expr *E) {
  const auto *Call = dyn_cast<CXXOperatorCallExpr>(E);
  return Call &&
         (Call->getOperator() == OO_Star || Call->getOperator() == OO_Arrow) &&
         isLoaderIterator(Call->getArg(0)->getType()) &&
         isExample(Call->getType());
}
