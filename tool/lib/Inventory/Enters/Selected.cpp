//===- Selected.cpp - Rows that a step takes out of the data --------------===//

#include "Selected.h"
#include "Evaluated.h"
#include "Sizes.h"
#include "TakenApart.h"
#include "Together.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {

/// The arguments of a function of LibTorch's without the tensor that it is called on, or
/// is given first.
llvm::ArrayRef<const Expr *> argumentsOf(const CallExpr *E) {
  const llvm::ArrayRef<const Expr *> All(E->getArgs(), E->getNumArgs());
  return isa<CXXMemberCallExpr>(E) || All.empty() ? All : All.drop_front();
}

/// Whether several rows are taken out, along dimension 0.
bool takesRows(const CallExpr *E, const ASTContext &Context) {
  const llvm::StringRef Name = torchNameOf(E);
  const llvm::ArrayRef<const Expr *> Args = argumentsOf(E);
  if (!isTensor(E->getType()) || Args.empty())
    return false;
  if (Name == "index_select" || Name == "narrow")
    return constantOf(Args[0], Context) == 0 &&
           !(Name == "narrow" && Args.size() == 3 &&
             constantOf(Args[2], Context) == 1);
  if (Name == "slice")
    return Args.size() > 2 && constantOf(Args[0], Context) == 0 &&
           !isa<CXXDefaultArgExpr>(Args[2]);
  // data.index({rows}), not scores.index({rows, classes}), which are elements.
  const InitListExpr *List = Name == "index" ? listIn(Args[0]) : nullptr;
  const auto IsTensor = [](const Expr *Index) {
    return isTensor(Index->IgnoreUnlessSpelledInSource()->getType());
  };
  return List && List->getNumInits() > 0 && IsTensor(List->getInit(0)) &&
         llvm::none_of(List->inits().drop_front(), IsTensor);
}

class SelectedWalk : public AstAncestorVisitor {
public:
  SelectedWalk(const ProgramIndex &Index, const FunctionDecl *In)
      : Index(Index), In(In) {}

  /// With the variable that is made of it, or the parameters that are given it, where
  /// there are such.
  struct Rows {
    const CallExpr *E;
    const VarDecl *Variable;
    Parameters Given;
  };
  std::vector<Rows> Found;
  std::set<const VarDecl *> Indices;

  bool VisitCallExpr(CallExpr *E) override {
    if (!selectsRows(E) || !Index.isInStep(E->getExprLoc(), In) ||
        isInEvaluation(Path, Index, /*InStep=*/true))
      return true;
    for (const Expr *Arg : argumentsOf(E))
      Indices.merge(variablesNamedIn(Arg));
    if (takesRows(E, Index.Context) && !isIndex(E))
      Found.push_back({E, madeOf(E), givenTo(E)});
    return true;
  }

private:
  /// Whether it stands in an argument of what takes rows itself.
  bool isIndex(const CallExpr *E) const {
    return llvm::any_of(Path, [&](const Stmt *S) {
      const auto *Outer = dyn_cast<CallExpr>(S);
      return Outer && Outer != E && selectsRows(Outer) &&
             llvm::any_of(argumentsOf(Outer), [&](const Expr *Arg) {
               return isWithin(E->getExprLoc(), Arg,
                               Index.Context.getSourceManager());
             });
    });
  }
  /// The variable that is declared with it.
  const VarDecl *madeOf(const CallExpr *E) const {
    for (const Stmt *S : llvm::reverse(Path))
      if (const auto *D = dyn_cast<DeclStmt>(S)) {
        for (const Decl *Declared : D->decls())
          if (const auto *V = dyn_cast<VarDecl>(Declared);
              V && V->getInit() && plain(V->getInit()) == E)
            return V;
        return nullptr;
      }
    return nullptr;
  }

  Parameters givenTo(const CallExpr *E) const {
    for (const Stmt *S : llvm::reverse(Path))
      if (const auto *Outer = dyn_cast<CallExpr>(S); Outer && Outer != E)
        return givenBy(
            Outer, [&](const Expr *Arg) { return plain(Arg) == E; }, Index);
    return {};
  }

  const ProgramIndex &Index;
  const FunctionDecl *In;
};

} // namespace

std::vector<Selected> accel::migrate::findSelected(const ProgramIndex &Index) {
  std::vector<Selected> All;
  for (const FunctionDecl *F : Index.Functions) {
    if (Index.loadsSamples(F))
      continue;
    SelectedWalk Walk(Index, F);
    Walk.TraverseStmt(F->getBody());
    for (const SelectedWalk::Rows &R : Walk.Found) {
      const bool Apart =
          R.Variable ? Walk.Indices.count(R.Variable) ||
                           isTakenApart(R.Variable, F, Index)
                     : isTakenApart(R.Given, Index);
      if (!Apart)
        All.push_back({R.E, F});
    }
  }
  return All;
}
