//===- Loaders.cpp - What loaders give ------------------------------------===//

#include "ProgramIndex.h"

#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

/// The types of a std::tuple or a std::variant, which are a pack.
static llvm::SmallVector<QualType, 4> typesInPack(const CXXRecordDecl *D) {
  llvm::SmallVector<QualType, 4> Types;
  if (const auto *S = dyn_cast_or_null<ClassTemplateSpecializationDecl>(D))
    for (const TemplateArgument &A : S->getTemplateArgs()[0].pack_elements())
      Types.push_back(A.getAsType());
  return Types;
}

bool accel::migrate::isBatch(QualType T) {
  if (isTensor(T) || isStructOfTensors(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  const llvm::StringRef Name = stdNameOf(D);
  const QualType First = typeArgumentOf(D, 0), Second = typeArgumentOf(D, 1);
  if (torchNameOf(D) == "Example" || Name == "array")
    return isBatch(First);
  if (Name == "pair")
    return isBatch(First) && isBatch(Second);
  if (Name == "tuple") {
    const auto Types = typesInPack(D);
    return !Types.empty() && llvm::all_of(Types, isBatch);
  }
  return (Name == "map" || Name == "unordered_map") &&
         stdNameOf(recordOf(First)) == "basic_string" && isBatch(Second);
}

/// Whether a loader's data set is of a final class: the runtime's loaders derive from
/// it. (One that is mapped, or owned, is not.)
static bool isOfFinalDataset(const CXXRecordDecl *Loader) {
  const CXXRecordDecl *Made = findInLine(Loader, [](const CXXRecordDecl *D) {
    return torchNameOf(D).ends_with("DataLoader");
  });
  const QualType Dataset = typeArgumentOf(Made, 0);
  const CXXRecordDecl *Class =
      Dataset.isNull() ? nullptr : Dataset->getAsCXXRecordDecl();
  return Class && Class->getDefinition() &&
         Class->getDefinition()->isEffectivelyFinal();
}

bool accel::migrate::isDistributedBy(const Expr *Loader, QualType Variable) {
  const CXXRecordDecl *D = loaderOf(Loader->getType());
  return D && isBatch(Variable) && !isOfFinalDataset(D);
}

bool accel::migrate::isNamedBatch(QualType T) {
  if (isStructOfTensors(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  if (stdNameOf(D) == "variant")
    return llvm::all_of(typesInPack(D), [](QualType Type) {
      return isTensor(Type) || isNamedBatch(Type);
    });
  if (stdNameOf(D) == "optional")
    return isNamedBatch(typeArgumentOf(D, 0));
  return stdNameOf(D).ends_with("map") && isBatch(T);
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
