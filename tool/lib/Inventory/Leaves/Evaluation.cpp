//===- Evaluation.cpp - What leaves: metrics of an evaluation loop --------===//
//
// Behind the last call of a model the outputs and targets are gathered, so that
// metrics see, and may do with, what one device has.
//
//===----------------------------------------------------------------------===//

#include "Leaves.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// The tensors that statements set, and those of which they read more than the
/// sizes.
class Names : public AstVisitor {
public:
  explicit Names(llvm::ArrayRef<Stmt *> In) {
    for (Stmt *S : In)
      TraverseStmt(S);
  }
  bool VisitVarDecl(VarDecl *V) override {
    if (V->getInit() && isTensor(V->getType()))
      Set.insert(V);
    return true;
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->getOperator() == OO_Equal)
      if (const auto *Ref = dyn_cast<DeclRefExpr>(plain(E->getArg(0))))
        Set.insert(Ref->getDecl());
    return true;
  }
  bool VisitCXXMemberCallExpr(CXXMemberCallExpr *E) override {
    if (describesTensor(E->getMethodDecl()))
      if (const auto *Ref =
              dyn_cast<DeclRefExpr>(plain(E->getImplicitObjectArgument())))
        Unread.insert(Ref);
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (!Unread.count(E))
      Named.insert(E->getDecl());
    return true;
  }
  std::set<const ValueDecl *> Set, Named;

private:
  std::set<const DeclRefExpr *> Unread;
};
} // namespace

void Evaluation::addGathers(const BatchLoop &Loop) {
  const auto *Body = dyn_cast<CompoundStmt>(bodyOf(Loop.Loop));
  if (!Loop.HasLoader || Loop.Training || Loop.AddsUp || !Body ||
      !Text.mayEdit(Body->getBeginLoc()))
    return;
  const llvm::ArrayRef<Stmt *> All(Body->body_begin(), Body->size());
  // The last statement that keeps what a model returns.
  size_t Last = All.size();
  std::set<const ValueDecl *> Outputs;
  for (size_t I = 0; I < All.size(); ++I)
    if (callsModel(All[I]) && (isa<DeclStmt>(All[I]) || isa<Expr>(All[I]))) {
      const Names Of(All[I]);
      if (!Of.Set.empty())
        Last = I;
      Outputs.insert(Of.Set.begin(), Of.Set.end());
    }
  if (Last == All.size())
    return;
  // What is taken from the batch directly behind it belongs to it.
  for (; Last + 1 < All.size() && isa<DeclStmt>(All[Last + 1]); ++Last) {
    const Names Of(All[Last + 1]);
    if (Of.Set.empty() ||
        llvm::any_of(Of.Named, [&](const ValueDecl *Named) {
          return Outputs.count(Named) != 0;
        }))
      break;
  }
  if (Last + 1 == All.size())
    return;
  const Names Behind(All.drop_front(Last + 1));
  VariablesFact Fact;
  for (const bool OfModel : {true, false})
    for (const Stmt *S : All.take_front(Last + 1)) {
      const auto *D = dyn_cast<DeclStmt>(S);
      if (!D)
        continue;
      for (const Decl *Each : D->decls()) {
        const auto *V = dyn_cast<VarDecl>(Each);
        if (V && (Outputs.count(V) != 0) == OfModel && isTensor(V->getType()) &&
            !V->getType()->isReferenceType() &&
            !V->getType().isConstQualified() && V->hasLocalStorage() &&
            V->getInit() && Cuts.in(V->getInit()) && Behind.Named.count(V))
          Fact.Variables.push_back(V->getNameAsString());
      }
    }
  const std::optional<LinePoint> At = Text.before(All[Last + 1]);
  if (Fact.Variables.empty() || !At)
    return; // Right without it, too.
  Fact.In = Functions.at(Body->getBeginLoc(), Loop.In);
  Fact.At = *At;
  Program.Gathers.push_back(std::move(Fact));
}
