//===- Sizes.cpp - The sizes that a function says -------------------------===//

#include "Sizes.h"

#include "Code/TorchTypes.h"

#include "clang/AST/ExprCXX.h"
#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

const InitListExpr *accel::migrate::listIn(const Stmt *S) {
  if (!S || isa<LambdaExpr>(S))
    return nullptr;
  if (const auto *List = dyn_cast<InitListExpr>(S))
    return List;
  for (const Stmt *Child : S->children())
    if (const InitListExpr *List = listIn(Child))
      return List;
  return nullptr;
}

const InitListExpr *accel::migrate::sizesOfBuffer(const Expr *Made) {
  static const llvm::StringSet<> Names = {
      "zeros",     "ones",     "full",     "empty",
      "new_zeros", "new_ones", "new_full", "new_empty"};
  const auto *Call = dyn_cast<CallExpr>(plain(Made));
  return Call && Call->getNumArgs() > 0 && Names.count(torchNameOf(Call))
             ? listIn(Call->getArg(0))
             : nullptr;
}

static std::optional<SizeOf> sizeOf(const Expr *E, const FunctionDecl *F,
                                    unsigned Depth) {
  E = bare(E);
  if (!E || Depth > 4)
    return {};
  if (const VarDecl *V = varNamedBy(E))
    return V->isLocalVarDecl() && V->getInit() && V->getDeclContext() == F
               ? sizeOf(V->getInit(), F, Depth + 1)
               : std::nullopt;
  const Expr *Object = nullptr, *At = nullptr;
  if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
      torchNameOf(Member) == "size" && Member->getNumArgs() == 1) {
    Object = Member->getImplicitObjectArgument();
    At = Member->getArg(0);
  } else if (const auto *O = operatorCall(E, OO_Subscript)) {
    const auto *All = dyn_cast<CXXMemberCallExpr>(plain(O->getArg(0)));
    if (torchNameOf(All) == "sizes")
      Object = All->getImplicitObjectArgument();
    At = O->getArg(1);
  }
  const auto *Tensor = dyn_cast_or_null<DeclRefExpr>(plain(Object));
  const std::optional<int64_t> Dim =
      Tensor ? constantOf(At, F->getASTContext()) : std::nullopt;
  if (!Dim || *Dim < 0 || !isTensor(Tensor->getType()) ||
      Tensor->getDecl()->getDeclContext() != F)
    return {};
  return SizeOf{Tensor, static_cast<unsigned>(*Dim)};
}

std::optional<SizeOf> accel::migrate::sizeOf(const Expr *E,
                                             const FunctionDecl *F) {
  return ::sizeOf(E, F, 0);
}
