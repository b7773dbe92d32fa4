//===- FromHost.cpp - Tensors of the host's numbers -----------------------===//

#include "FromHost.h"
#include "Groups.h"
#include "Returned.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// `{x, 0.5f}`, std::vector<float>, float[4]
static bool listsFloats(const Expr *E) {
  const auto IsFloat = [](QualType T) { return T->isRealFloatingType(); };
  if (const InitListExpr *List = listIn(E))
    return llvm::none_of(List->inits(), listIn) &&
           llvm::any_of(List->inits(), [&](const Expr *Init) {
             return IsFloat(bare(Init)->getType());
           });
  const QualType T = bare(E)->getType().getNonReferenceType();
  if (const ArrayType *Array = T->getAsArrayTypeUnsafe())
    return IsFloat(Array->getElementType());
  static const llvm::StringSet<> Lists = {"vector", "array", "ArrayRef",
                                          "initializer_list"};
  const CXXRecordDecl *D = recordOf(T);
  return Lists.count(nameOf(D)) && llvm::any_of(typeArgumentsOf(D), IsFloat);
}

/// torch::from_blob(memory, {4}), of floats.
static bool isLineOfFloats(const CallExpr *E) {
  const InitListExpr *Sizes = E->getNumArgs() > 1 ? listIn(E->getArg(1)) : nullptr;
  return Sizes && Sizes->getNumInits() == 1 &&
         !anyIn<DeclRefExpr>(E, [](const DeclRefExpr *Named) {
           static const llvm::StringSet<> Whole = {"kInt",   "kInt32", "kLong",
                                                   "kInt64", "kByte",  "kUInt8"};
           return Whole.count(nameOf(Named->getDecl())) != 0;
         });
}

/// Whether `E` is a line of numbers.
static bool isLine(const Expr *E, const ProgramIndex &Index, unsigned Depth) {
  // What leaves the numbers as they are.
  static const llvm::StringSet<> Keeps = {"to",     "clone", "contiguous",
                                          "detach", "cuda",  "cpu"};
  constexpr unsigned Deepest = 8;
  const auto *Call = dyn_cast_or_null<CallExpr>(plain(E));
  const FunctionDecl *F = calleeOf(Call);
  if (!F || Depth > Deepest)
    return false;
  const llvm::StringRef Name = torchNameOf(Call);
  if (Name == "tensor")
    return listsFloats(Call->getArg(0));
  if (Name == "from_blob")
    return isLineOfFloats(Call);
  if (Keeps.count(Name) && isa<CXXMemberCallExpr>(Call))
    return isLine(leadingOperand(Call), Index, Depth + 1);
  const auto Bodies = Index.ownBodiesOf(F);
  return !Bodies.empty() && llvm::all_of(Bodies, [&](const FunctionDecl *Body) {
    const auto Values = valuesOf(Body);
    return !Values.empty() && llvm::all_of(Values, [&](const Expr *Value) {
      return isLine(Value, Index, Depth + 1);
    });
  });
}

/// Whether the model is given one tensor, and does not make rows of it first.
static bool takesFeatures(const CallExpr *ReadBy, const ProgramIndex &Index) {
  static const llvm::StringSet<> Makes = {"unsqueeze", "unsqueeze_", "view",
                                          "reshape", "unflatten"};
  const std::optional<ModelCall> Call = modelCallOf(ReadBy);
  if (!Call || Call->Inputs.size() != 1)
    return false;
  return llvm::none_of(bodiesRunBy(ReadBy, Index), [](const FunctionDecl *Body) {
    return anyIn<CallExpr>(Body->getBody(), [&](const CallExpr *E) {
      const ValueDecl *Root =
          Makes.count(torchNameOf(E)) ? rootOf(leadingOperand(E)) : nullptr;
      return llvm::is_contained(Body->parameters(), Root);
    });
  });
}

bool accel::migrate::isObservation(const Expr *E, const CallExpr *ReadBy,
                                   const ProgramIndex &Index) {
  return isLine(E, Index, 0) && takesFeatures(ReadBy, Index);
}

bool accel::migrate::isLaidOverMemory(const Expr *E) {
  static const llvm::StringSet<> Views = {"view",   "reshape", "unsqueeze", "t",
                                          "slice",  "narrow",  "permute",
                                          "select", "squeeze", "transpose"};
  while (Views.count(torchNameOf(E)))
    E = leadingOperand(E);
  return torchNameOf(E) == "from_blob";
}
