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

/// Whether a function is no constructor and trains, or is called where a step does.
static bool takesPartInTraining(const FunctionDecl *F, const ProgramIndex &Index) {
  return !isa<CXXConstructorDecl>(F) &&
         (Index.trainsDirectly(F) || Index.InStep.count(F) ||
          llvm::is_contained(Index.GivenAway, F));
}

/// What a class makes without a constructor of its own, or before main, is prepared
/// where it trains.
void OptimizerFacts::end() {
  if (Function == Index.Main)
    for (const VarDecl *V : Index.Globals)
      optimizersIn(V);
  const auto *Method = dyn_cast<CXXMethodDecl>(Function);
  if (Method && takesPartInTraining(Function, Index))
    for (const FieldDecl *Member : Method->getParent()->fields()) {
      optimizerOfDefault(Member);
      optimizerBeforeMain(Member);
    }
}

/// What a constructor makes a member with; null where it does not.
static const Expr *madeBy(const CXXConstructorDecl *Ctor,
                          const FieldDecl *Member) {
  const Expr *Made = nullptr;
  for (const CXXCtorInitializer *Init : Ctor->inits())
    if (Init->getMember() == Member && Init->isWritten())
      Made = Init->getInit();
  eachIn<CXXOperatorCallExpr>(
      Ctor->getBody(), [&](const CXXOperatorCallExpr *E) {
        if (E->getOperator() == OO_Equal && placeOf(E->getArg(0)) == Member)
          Made = E->getArg(1);
      });
  return Made;
}

/// A member that a constructor makes which runs before main.
void OptimizerFacts::optimizerBeforeMain(const FieldDecl *Member) {
  const auto *Class = cast<CXXRecordDecl>(Member->getParent());
  if (!optimizerOf(Member->getType()))
    return;
  for (const CXXConstructorDecl *Ctor : Class->ctors()) {
    const FunctionDecl *Body = nullptr;
    if (!Ctor->hasBody(Body) || !Index.BeforeMain.count(Body))
      continue;
    const Expr *Made = madeBy(cast<CXXConstructorDecl>(Body), Member);
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
  if (nameOf(F).starts_with("make_") && isInStd(F) && Call->getNumArgs() == 0) {
    const auto Types = typeArgumentsOf(F);
    return Types.empty() ? nullptr : Types.front()->getAsCXXRecordDecl();
  }
  const auto *Made = dyn_cast<CXXConstructExpr>(plain(Init));
  const auto *List = dyn_cast<InitListExpr>(plain(Init));
  const bool ByDefault =
      (Made && Made->getConstructor()->isDefaultConstructor()) ||
      (List && llvm::all_of(List->inits(), [](const Expr *E) {
         return isa<CXXDefaultInitExpr, ImplicitValueInitExpr>(E);
       }));
  return ByDefault ? V->getType()->getAsCXXRecordDecl() : nullptr;
}

/// The models among a class's members that an expression names.
static std::vector<const FieldDecl *> modelsNamedIn(const Expr *E) {
  std::vector<const FieldDecl *> Found;
  eachIn<MemberExpr>(E, [&](const MemberExpr *Named) {
    const auto *Field = dyn_cast<FieldDecl>(Named->getMemberDecl());
    if (Field && moduleOf(Field->getType()) && placeOf(Named) == Field &&
        !llvm::is_contained(Found, Field))
      Found.push_back(Field);
  });
  return Found;
}

/// Whether methods of the class train: they prepare what it has.
static bool trainsItself(const CXXRecordDecl *Class, const ProgramIndex &Index) {
  return llvm::any_of(Class->methods(), [&](const CXXMethodDecl *M) {
    return llvm::any_of(Index.ownBodiesOf(M), [&](const FunctionDecl *F) {
      return takesPartInTraining(F, Index);
    });
  });
}

/// What a member is made with, by a class without a constructor of its own, or,
/// before main, by the one that has no parameters.
const Expr *OptimizerFacts::madeWith(const FieldDecl *Member) const {
  const auto *Class = cast<CXXRecordDecl>(Member->getParent());
  const Expr *Init = Member->hasInClassInitializer()
                         ? Member->getInClassInitializer()
                         : nullptr;
  for (const CXXConstructorDecl *Ctor : Class->ctors())
    if (const FunctionDecl *Body = nullptr;
        Ctor->isDefaultConstructor() && Ctor->hasBody(Body) &&
        Index.BeforeMain.count(Body))
      if (const Expr *Made = madeBy(cast<CXXConstructorDecl>(Body), Member))
        Init = Made;
  return Init;
}

/// The optimizers that an object of the program's makes by itself, and that others
/// train: they are prepared behind the variable, or, if it is global, where main comes
/// to the first training.
void OptimizerFacts::optimizersIn(const VarDecl *V) {
  const CXXRecordDecl *Class =
      Function && !Initialiser && !isa<ParmVarDecl>(V) ? madeByDefault(V)
                                                       : nullptr;
  const bool IsGlobal = !V->isLocalVarDecl();
  if (!Class || isLibrary(Class) ||
      (Class->hasUserDeclaredConstructor() && !IsGlobal) ||
      trainsItself(Class, Index))
    return;
  OptimizerFact AtTraining;
  if (IsGlobal && !setUpBeforeTraining(AtTraining, Function, *this))
    return;
  const bool IsObject = V->getType()->getAsCXXRecordDecl() == Class;
  const std::string Of =
      scopesOf(V, Function) + V->getName().str() + (IsObject ? "." : "->");
  const auto NameOf = [&](const ValueDecl *Member) {
    const std::string Name = objectOf(Member, Function);
    return Name[0] == '*' ? "*" + Of + Name.substr(1) : Of + Name;
  };
  for (const FieldDecl *Member : Class->fields()) {
    const Expr *Init = madeWith(Member);
    if (Init && schedulerOf(Member->getType()) && !IsGlobal)
      schedulerMade(Member, Init);
    if (!Init || !optimizerOf(Member->getType()) || namesAnother(Init))
      continue;
    const Making Made = makingOf(Member, Init);
    if (!Made.Understood ||
        !canTakePart(Made.Class ? Made.Class : optimizerOf(Member->getType())))
      continue;
    Program.Optimizers.push_back({Functions.of(Function), Made.TypeNames});
    OptimizerFact Fact = AtTraining;
    if (!IsGlobal && !setUp(Fact, nullptr, {}))
      continue;
    Fact.Object = NameOf(Member);
    for (const FieldDecl *Model : modelsNamedIn(Init))
      Fact.Models.push_back(NameOf(Model));
    Program.Optimizers.push_back(std::move(Fact));
  }
}
