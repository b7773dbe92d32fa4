//===- StrayOptimizers.cpp - Optimizers that are no variable --------------===//
//
// They stay LibTorch's. What they train is prepared where that is seen, so that
// gradients are brought together at once and not one by one.
//
//===----------------------------------------------------------------------===//

#include "Learns.h"

#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// An optimizer that is made elsewhere than in a variable's declaration.
void OptimizerFacts::strayOptimizer(const Expr *E) {
  for (const Stmt *S : Path)
    if (Consumed.count(S))
      return;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E))
    if (Made->getConstructor()->isCopyOrMoveConstructor())
      return;
  if (const auto *Made = dyn_cast<CXXConstructExpr>(E);
      Made && isa<CXXConstructorDecl>(Function) &&
      isOrDerives(cast<CXXConstructorDecl>(Function)->getParent(),
                  "torch::optim::Optimizer"))
    return;
  Consumed.insert(E);
  const bool Prepared = prepareModelsOf(E);
  say("ACL0182", E->getExprLoc(),
      llvm::Twine("an optimizer is made here that is not a variable of the "
                  "function, and stays LibTorch's")
              .concat(Prepared ? "; its model is prepared" : "")
              .str(),
      PrepareByHand);
}

/// `Schedule schedule(std::make_unique<torch::optim::Adam>(net->parameters()));`: its
/// model can be prepared behind that.
bool OptimizerFacts::prepareModelsOf(const Expr *Optimizer) {
  const Expr *Parameters = makingOf(nullptr, Optimizer).First;
  if (!Parameters || !Lambdas.empty())
    return false;
  std::vector<const ValueDecl *> Models;
  if (const ValueDecl *Model = modelOf(Parameters))
    Models = {Model};
  else
    Models = listedModels(Parameters);
  const Stmt *Child = nullptr;
  const bool IsBefore =
      setUpBlock(&Child) && (!Child || (isa<DeclStmt, Expr>(Child) &&
                                        !Index.holdsBatches(Child)));
  OptimizerFact Fact;
  if (Models.empty() || !IsBefore || !setUp(Fact, nullptr, Models))
    return false;
  Program.Optimizers.push_back(std::move(Fact));
  return true;
}

/// Parameters that come later must come before prepare does.
void OptimizerFacts::addedGroup(const CallExpr *E) {
  const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
  const ValueDecl *Optimizer =
      Call ? placeOf(Call->getImplicitObjectArgument()) : nullptr;
  const Stmt *Child = nullptr;
  bool Here = false;
  if (const CompoundStmt *Block = block(&Child);
      Block && Child && isa<Expr>(Child) && plain(cast<Expr>(Child)) == E)
    for (const Stmt *S : Block->body())
      if (const auto *D = dyn_cast<DeclStmt>(S))
        for (const Decl *Declared : D->decls())
          Here |= Declared == Optimizer;
  if (!Here)
    say("ACL0182", E->getExprLoc(),
           "parameters are added to an optimizer at another place than the one "
           "that makes it: their gradients are summed one by one",
           "Nothing has to be done for the results. To have them summed with "
           "the others, call accelerator.prepare(optimizer) behind this.");
}
