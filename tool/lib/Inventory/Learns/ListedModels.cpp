//===- ListedModels.cpp - Models whose parameters come in a list ----------===//

#include "Learns.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// A vector of tensors or of an optimizer's groups.
static bool isListOfParameters(QualType T) {
  const CXXRecordDecl *List = recordOf(T);
  const auto Types = typeArgumentsOf(List);
  if (nameOf(List) != "vector" || !isInStd(List) || Types.empty())
    return false;
  const CXXRecordDecl *D = recordOf(Types.front());
  return isOrDerives(D, "at::Tensor") ||
         (nameOf(D) == "OptimizerParamGroup" && isTorch(D));
}

/// The outermost model that `E` is a part of: net of net->layers[0].head.
static const ValueDecl *outermostModel(const Expr *E) {
  const ValueDecl *Model = nullptr;
  while ((E = bare(E))) {
    if (moduleOf(E->getType()))
      if (const ValueDecl *Place = placeOf(E); Place && moduleOf(Place->getType()))
        Model = Place;
    if (const auto *Member = dyn_cast<MemberExpr>(E))
      E = Member->getBase();
    else if (const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E))
      E = Operator->getArg(0);
    else if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E))
      E = Call->getImplicitObjectArgument();
    else
      break;
  }
  return Model;
}

namespace {
/// What a statement says of the list: the models whose parameters are in it, and
/// the lists that are.
class Mentions : public AstVisitor {
public:
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F)
      return true;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
      // net->parameters(), and net->weights_without_bias() of its own.
      const bool IsAsked =
          nameOf(F) == "parameters" || nameOf(F) == "named_parameters" ||
          (F->getIdentifier() && isListOfParameters(F->getReturnType()));
      if (IsAsked && moduleOf(Member->getImplicitObjectArgument()->getType()))
        add(outermostModel(Member->getImplicitObjectArgument()));
    } else if (!isLibrary(F) && isListOfParameters(F->getReturnType())) {
      // weights_of(net, head)
      for (const Expr *Arg : E->arguments())
        if (moduleOf(Arg->getType()))
          add(outermostModel(Arg));
    }
    return true;
  }

  /// net->embedding->weight
  bool VisitMemberExpr(MemberExpr *E) override {
    if (isOrDerives(recordOf(E->getType()), "at::Tensor") &&
        moduleOf(E->getBase()->getType()))
      add(outermostModel(E->getBase()));
    return true;
  }

  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const auto *V = dyn_cast<VarDecl>(E->getDecl()))
      list(V);
    return true;
  }

  bool VisitVarDecl(VarDecl *V) override {
    list(V);
    return true;
  }

  std::set<const VarDecl *> Lists;
  std::vector<const ValueDecl *> Models;

private:
  void list(const VarDecl *V) {
    if (isListOfParameters(V->getType()))
      Lists.insert(V);
  }
  void add(const ValueDecl *Model) {
    if (Model && !llvm::is_contained(Models, Model))
      Models.push_back(Model);
  }
};
} // namespace

std::vector<const ValueDecl *>
accel::migrate::modelsInList(const Expr *Parameters,
                             llvm::ArrayRef<const Stmt *> Before) {
  Mentions Given;
  Given.TraverseStmt(const_cast<Expr *>(Parameters));
  // From the last to the first, as a list may be made of others.
  std::vector<std::vector<const ValueDecl *>> Found = {Given.Models};
  std::set<const VarDecl *> Lists = Given.Lists;
  for (const Stmt *S : llvm::reverse(Before)) {
    Mentions Here;
    Here.TraverseStmt(const_cast<Stmt *>(S));
    if (llvm::none_of(Here.Lists, [&](const VarDecl *V) { return Lists.count(V) != 0; }))
      continue;
    Lists.insert(Here.Lists.begin(), Here.Lists.end());
    Found.push_back(std::move(Here.Models));
  }
  std::vector<const ValueDecl *> Result;
  for (const std::vector<const ValueDecl *> &Models : llvm::reverse(Found))
    for (const ValueDecl *Model : Models)
      if (!llvm::is_contained(Result, Model))
        Result.push_back(Model);
  return Result;
}
