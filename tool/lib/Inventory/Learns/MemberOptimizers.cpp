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
  if (!Member->hasInClassInitializer() || !Member->getInClassInitializer() ||
      Class->hasUserDeclaredConstructor())
    return;
  if (schedulerOf(Member->getType()))
    return schedulerMade(Member, Member->getInClassInitializer());
  if (!optimizerOf(Member->getType()) ||
      namesAnother(Member->getInClassInitializer()))
    return;
  llvm::SaveAndRestore<const Expr *> Top(Initialiser,
                                         Member->getInClassInitializer());
  optimizerMade(Member, Member, Member->getInClassInitializer());
}

/// The class of an object that is made where `V` is declared, without arguments:
/// `Agent agent;`, `auto agent = std::make_shared<Agent>();`; or null.
static const CXXRecordDecl *madeByDefault(const VarDecl *V) {
  const Expr *Init = V->getInit();
  if (!Init || V->getType()->isReferenceType() || V->getType()->isPointerType())
    return nullptr;
  const auto *Call = dyn_cast<CallExpr>(plain(Init));
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  if (F && F->getIdentifier() && isInStd(F) && F->getName().starts_with("make_") &&
      Call->getNumArgs() == 0) {
    const TemplateArgumentList *Types = F->getTemplateSpecializationArgs();
    return Types && Types->size() > 0 &&
                   Types->get(0).getKind() == TemplateArgument::Type
               ? Types->get(0).getAsType()->getAsCXXRecordDecl()
               : nullptr;
  }
  const auto *Made = dyn_cast<CXXConstructExpr>(plain(Init));
  const auto *List = dyn_cast<InitListExpr>(plain(Init));
  const bool ByDefault =
      (Made && Made->getConstructor()->isDefaultConstructor()) ||
      (List && llvm::all_of(List->inits(), [](const Expr *E) {
         return isa<CXXDefaultInitExpr>(E) ||
                isa<ImplicitValueInitExpr>(E);
       }));
  return ByDefault ? V->getType()->getAsCXXRecordDecl() : nullptr;
}

/// The members that a variable's class makes where they are declared, and that
/// others train: they are prepared behind the variable.
void OptimizerFacts::optimizersIn(const VarDecl *V) {
  const CXXRecordDecl *Class =
      V->isLocalVarDecl() && Function ? madeByDefault(V) : nullptr;
  if (!Class || isTorch(Class) || isInStd(Class) ||
      Class->hasUserDeclaredConstructor() || Initialiser)
    return;
  const bool TrainsItself =
      llvm::any_of(Class->methods(), [&](const CXXMethodDecl *M) {
        return llvm::any_of(Index.ownBodiesOf(M), [&](const FunctionDecl *F) {
          return Index.trainsDirectly(F) || Index.InStep.count(F) ||
                 llvm::is_contained(Index.GivenAway, F);
        });
      });
  if (TrainsItself) // It prepares them there.
    return;
  const std::string Of =
      V->getName().str() + (V->getType()->isRecordType() &&
                                    V->getType()->getAsCXXRecordDecl() == Class
                                ? "."
                                : "->");
  const auto nameIn = [&](const ValueDecl *Member) {
    const std::string Name = objectOf(Member, Function);
    return Name[0] == '*' ? "*" + Of + Name.substr(1) : Of + Name;
  };
  for (const FieldDecl *Member : Class->fields()) {
    const Expr *Init = Member->hasInClassInitializer()
                           ? Member->getInClassInitializer()
                           : nullptr;
    if (Init && schedulerOf(Member->getType()))
      schedulerMade(Member, Init);
    if (!Init || !optimizerOf(Member->getType()) || namesAnother(Init))
      continue;
    const Making Made = makingOf(Member, Init);
    const CXXRecordDecl *Kind =
        Made.Class ? Made.Class : optimizerOf(Member->getType());
    if (!Made.Understood || !canTakePart(Kind))
      continue;
    OptimizerFact Types, Fact;
    Types.In = here();
    Types.TypeNames = Made.TypeNames;
    Program.Optimizers.push_back(std::move(Types));
    if (!setUp(Fact, nullptr, {}))
      continue;
    Fact.Object = nameIn(Member);
    for (const ValueDecl *Model : modelsOf(Made.First))
      if (Model->getDeclContext() == Class)
        Fact.Models.push_back(nameIn(Model));
    Program.Optimizers.push_back(std::move(Fact));
  }
}
