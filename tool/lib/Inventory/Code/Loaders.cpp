//===- Loaders.cpp - What loaders give ------------------------------------===//

#include "ProgramIndex.h"

#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

bool accel::migrate::isBatch(QualType T) {
  if (isTensor(T) || isStructOfTensors(T))
    return true;
  const auto *D =
      dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(T));
  if (!D || !D->getIdentifier())
    return false;
  const llvm::ArrayRef<TemplateArgument> Args = D->getTemplateArgs().asArray();
  const auto IsBatch = [](const TemplateArgument &A) {
    return A.getKind() == TemplateArgument::Type && isBatch(A.getAsType());
  };
  if (isTorch(D))
    return D->getName() == "Example" && IsBatch(Args[0]);
  if (!isInStd(D))
    return false;
  if (D->getName() == "pair")
    return IsBatch(Args[0]) && IsBatch(Args[1]);
  if (D->getName() == "array")
    return IsBatch(Args[0]);
  if (D->getName() == "tuple" && Args.size() == 1)
    return Args[0].pack_size() != 0 &&
           llvm::all_of(Args[0].pack_elements(), IsBatch);
  if (D->getName() != "map" && D->getName() != "unordered_map")
    return false;
  const CXXRecordDecl *Key = recordOf(Args[0].getAsType());
  return Key && isInStd(Key) && Key->getName() == "basic_string" &&
         IsBatch(Args[1]);
}

/// Whether a loader's data set is of a final class: the runtime's loaders derive from
/// it. (One that is mapped, or owned, is not.)
static bool isOfFinalDataset(const CXXRecordDecl *Loader) {
  while (Loader && Loader->getDefinition()) {
    Loader = Loader->getDefinition();
    if (const auto *D = dyn_cast<ClassTemplateSpecializationDecl>(Loader);
        D && isTorch(D) && nameOf(D).ends_with("DataLoader")) {
      const TemplateArgument &Dataset = D->getTemplateArgs()[0];
      const CXXRecordDecl *Class =
          Dataset.getKind() == TemplateArgument::Type
              ? Dataset.getAsType()->getAsCXXRecordDecl()
              : nullptr;
      return Class && Class->getDefinition() &&
             Class->getDefinition()->isEffectivelyFinal();
    }
    if (Loader->getNumBases() != 1)
      return false;
    Loader = Loader->bases_begin()->getType()->getAsCXXRecordDecl();
  }
  return false;
}

bool accel::migrate::isDistributedBy(const Expr *Loader, QualType Variable) {
  const CXXRecordDecl *D = loaderOf(Loader->getType());
  return D && isBatch(Variable) && !isOfFinalDataset(D);
}

bool accel::migrate::isNamedBatch(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  if (isStructOfTensors(T))
    return true;
  const auto *Of = dyn_cast_or_null<ClassTemplateSpecializationDecl>(D);
  if (!Of || !isInStd(D) || !D->getIdentifier())
    return false;
  const llvm::ArrayRef<TemplateArgument> Args = Of->getTemplateArgs().asArray();
  if (D->getName() == "variant")
    return llvm::all_of(Args[0].pack_elements(), [](const TemplateArgument &A) {
      return isTensor(A.getAsType()) || isNamedBatch(A.getAsType());
    });
  if (D->getName() == "optional")
    return isNamedBatch(Args[0].getAsType());
  return D->getName().ends_with("map") && isBatch(T);
}

/// The iterator that a loader's begin() returns.
static bool isLoaderIterator(QualType T) {
  const CXXRecordDecl *D = recordOf(T);
  return nameOf(D) == "Iterator" &&
         llvm::StringRef(qualifiedName(D)).starts_with("torch::data::");
}

bool accel::migrate::readsBatch(const Expr *E) {
  const auto *Call = dyn_cast<CXXOperatorCallExpr>(E);
  return Call &&
         (Call->getOperator() == OO_Star || Call->getOperator() == OO_Arrow) &&
         isLoaderIterator(Call->getArg(0)->getType()) &&
         isBatch(Call->getType());
}
