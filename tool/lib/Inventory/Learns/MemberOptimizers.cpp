//===- MemberOptimizers.cpp - Optimizers that no constructor can prepare ---===//
//
// A class may have none of its own, or one that runs before main, when no accelerator
// exists: its members are prepared at the top of the methods that train.
//
//===----------------------------------------------------------------------===//

#include "Learns.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace accel::migrate;
using namespace clang;

/// Whether a constructor is looked at that runs before main, when no accelerator
/// exists: what it makes is prepared where its class trains.
bool OptimizerFacts::isBeforeMain() const {
  return isa<CXXConstructorDecl>(Function) && Index.BeforeMain.count(Function);
}

/// What a class makes without a constructor of its own, or before main, is prepared
/// where it trains.
void OptimizerFacts::end() {
  const auto *Method = dyn_cast<CXXMethodDecl>(Function);
  if (Method &&
      (Index.trainsDirectly(Function) || Index.InStep.count(Function) ||
       llvm::is_contained(Index.GivenAway, Function)) &&
      !isa<CXXConstructorDecl>(Function))
    for (const FieldDecl *Member : Method->getParent()->fields()) {
      optimizerOfDefault(Member);
      optimizerBeforeMain(Member);
    }
}

namespace {
/// What a constructor makes a member with.
class MadeBy : public AstVisitor {
public:
  MadeBy(const CXXConstructorDecl *Ctor, const FieldDecl *Member)
      : Member(Member) {
    for (const CXXCtorInitializer *Init : Ctor->inits())
      if (Init->getMember() == Member && Init->isWritten())
        Found = Init->getInit();
    TraverseStmt(Ctor->getBody());
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->getOperator() == OO_Equal && placeOf(E->getArg(0)) == Member)
      Found = E->getArg(1);
    return true;
  }
  const Expr *Found = nullptr;

private:
  const FieldDecl *Member;
};
} // namespace

/// A member that a constructor makes which runs before main.
void OptimizerFacts::optimizerBeforeMain(const FieldDecl *Member) {
  const auto *Class = cast<CXXRecordDecl>(Member->getParent());
  if (!optimizerOf(Member->getType()))
    return;
  for (const CXXConstructorDecl *Ctor : Class->ctors()) {
    const FunctionDecl *Body = nullptr;
    if (!Ctor->hasBody(Body) || !Index.BeforeMain.count(Body))
      continue;
    const Expr *Made = MadeBy(cast<CXXConstructorDecl>(Body), Member).Found;
    if (!Made || namesAnother(Made))
      continue;
    llvm::SaveAndRestore Top(Initialiser, Made);
    OptimizerFact Fact;
    std::vector<const ValueDecl *> Models =
        modelsOf(makingOf(nullptr, Made).First);
    llvm::erase_if(Models, [](const ValueDecl *Model) {
      const auto *V = dyn_cast<VarDecl>(Model);
      return V && !V->hasGlobalStorage();
    });
    if (setUpHolder(Fact, Member, Models, Made->getExprLoc()))
      Program.Optimizers.push_back(std::move(Fact));
    return;
  }
}

/// A member that is made where it is declared, in a class that has no
/// constructor in which it could be prepared.
void OptimizerFacts::optimizerOfDefault(const FieldDecl *Member) {
  const auto *Class = cast<CXXRecordDecl>(Member->getParent());
  if (!optimizerOf(Member->getType()) || !Member->hasInClassInitializer() ||
      Class->hasUserDeclaredConstructor() ||
      !Member->getInClassInitializer() ||
      namesAnother(Member->getInClassInitializer()))
    return;
  llvm::SaveAndRestore<const Expr *> Top(Initialiser,
                                         Member->getInClassInitializer());
  optimizerMade(Member, Member, Member->getInClassInitializer());
}
