//===- OptimizerFacts.cpp - Optimizers and schedulers ---------------------===//

#include "Learns.h"
#include "Code/Closures.h"
#include "Code/TorchTypes.h"

#include "clang/AST/TypeLoc.h"
#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// Whether objects of the class are what is made, and no owners of it.
static bool isMade(const CXXRecordDecl *Class) {
  return Class &&
         (isTorch(Class) || isOrDerives(Class, "torch::optim::Optimizer"));
}

/// Where a type is spelled of which pointers and arguments of templates name `Class`.
static std::vector<SourceRange> namedIn(TypeLoc Type, const CXXRecordDecl *Class) {
  Type = Type.getUnqualifiedLoc();
  if (const auto Pointer = Type.getAs<PointerTypeLoc>())
    return namedIn(Pointer.getPointeeLoc(), Class);
  if (Type.getType()->getAsCXXRecordDecl() == Class)
    return {Type.getSourceRange()};
  std::vector<SourceRange> Found;
  if (const auto Elaborated = Type.getAs<ElaboratedTypeLoc>())
    Type = Elaborated.getNamedTypeLoc();
  if (const auto Special = Type.getAs<TemplateSpecializationTypeLoc>())
    for (unsigned I = 0; I < Special.getNumArgs(); ++I)
      if (const TypeSourceInfo *Arg = Special.getArgLoc(I).getTypeSourceInfo())
        for (const SourceRange Range : namedIn(Arg->getTypeLoc(), Class))
          Found.push_back(Range);
  return Found;
}

/// `V` is what holds it, where its type is spelled, too; may be null.
OptimizerFacts::Making OptimizerFacts::makingOf(const DeclaratorDecl *V,
                                        const Expr *Init) {
  Making Result;
  auto Add = [&](std::optional<SourceRange> Spelled) {
    if (!Spelled)
      return;
    if (std::optional<TextRange> R = Text.range(*Spelled))
      Result.TypeNames.push_back(*R);
    else
      Result.Understood = false;
  };
  Init = Init ? plain(Init) : nullptr;
  // make_unique's result in a unique_ptr of the base class, and the like.
  while (Init && !isMade(recordOf(Init->getType()))) {
    if (const auto *Made = dyn_cast<CXXConstructExpr>(Init);
        Made && Made->getNumArgs() == 1)
      Init = plain(Made->getArg(0));
    else if (const auto *Cast = dyn_cast<CXXFunctionalCastExpr>(Init))
      Init = plain(Cast->getSubExpr());
    else
      break;
  }
  if (V && isMade(recordOf(V->getType())) && !V->getType()->isPointerType())
    Add(spellingOf(V->getTypeSourceInfo()));
  if (const auto *List = dyn_cast_or_null<InitListExpr>(Init);
      List && List->getNumInits() == 1)
    Init = plain(List->getInit(0));
  if (const auto *Cast = dyn_cast_or_null<CXXFunctionalCastExpr>(Init)) {
    Add(spellingOf(Cast->getTypeInfoAsWritten()));
    Init = plain(Cast->getSubExpr());
  } else if (const auto *Made =
                 dyn_cast_or_null<CXXTemporaryObjectExpr>(Init)) {
    Add(spellingOf(Made->getTypeSourceInfo()));
  }
  if (const auto *New = dyn_cast_or_null<CXXNewExpr>(Init)) {
    Consumed.insert(New);
    Add(spellingOf(New->getAllocatedTypeSourceInfo()));
    Init = New->getConstructExpr();
  }
  if (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Init)) {
    Consumed.insert(Made);
    Result.Class = Made->getConstructor()->getParent();
    if (Made->getNumArgs() > 0)
      Result.First = Made->getArg(0);
  } else if (const auto *Call = dyn_cast_or_null<CallExpr>(Init)) {
    const FunctionDecl *F = Call->getDirectCallee();
    const auto *Ref =
        dyn_cast<DeclRefExpr>(Call->getCallee()->IgnoreParenImpCasts());
    if (F && isInStd(F) && Ref &&
        (nameOf(F) == "make_unique" || nameOf(F) == "make_shared") &&
        Ref->getNumTemplateArgs() == 1) {
      Consumed.insert(Call);
      Add(Ref->getTemplateArgs()[0].getSourceRange());
      Result.Class = recordOf(Ref->getTemplateArgs()[0].getArgument().getAsType());
      if (Call->getNumArgs() > 0)
        Result.First = Call->getArg(0);
    } else {
      Result.Understood = false;
    }
  } else {
    Result.Understood = false;
  }
  if (Result.TypeNames.empty())
    Result.Understood = false;
  return Result;
}

/// Whether a member needs `this->` in `In`: a parameter has its name, or it comes of a
/// base that depends on a template's argument.
static bool isHidden(const FieldDecl *Member, const FunctionDecl *In) {
  const DeclContext *Around = In;
  while (Around && !(isa<CXXRecordDecl>(Around) &&
                     !cast<CXXRecordDecl>(Around)->isLambda()))
    Around = Around->getParent();
  const auto *Class = cast_or_null<CXXRecordDecl>(Around);
  const CXXRecordDecl *Pattern =
      Class ? Class->getTemplateInstantiationPattern() : nullptr;
  return (Pattern && Pattern->hasAnyDependentBases() &&
          Member->getParent()->getCanonicalDecl() != Class->getCanonicalDecl()) ||
         llvm::any_of(In->parameters(), [&](const ParmVarDecl *P) {
           return P->getName() == Member->getName();
         });
}

std::string accel::migrate::objectOf(const ValueDecl *Place,
                                     const FunctionDecl *In) {
  if (isa<FunctionDecl>(Place))
    return "*this";
  std::string Name = Place->getNameAsString();
  if (const auto *Member = dyn_cast<FieldDecl>(Place);
      Member && isHidden(Member, In))
    Name = "this->" + Name;
  const CXXRecordDecl *D = recordOf(Place->getType());
  const llvm::StringRef Class = isInStd(D) ? nameOf(D) : "";
  if (Class == "reference_wrapper")
    return Name + ".get()";
  const bool Pointer =
      Place->getType().getNonReferenceType()->isPointerType() ||
      Class == "unique_ptr" || Class == "optional";
  return (Pointer ? "*" : "") + Name;
}

std::string accel::migrate::scopesOf(const VarDecl *V, const FunctionDecl *In) {
  std::string Scopes;
  for (const DeclContext *D = V->getDeclContext();
       !D->isTranslationUnit() && !D->Encloses(In); D = D->getParent())
    if (const auto *Scope = dyn_cast<NamedDecl>(D);
        Scope && Scope->getIdentifier() && !D->isInlineNamespace())
      Scopes = Scope->getName().str() + "::" + Scopes;
  return Scopes;
}

bool accel::migrate::setUpBeforeTraining(OptimizerFact &Fact,
                                         const FunctionDecl *In,
                                         const Unit &U) {
  const CompoundStmt *Block = blockOf(In->getBody());
  if (!Block)
    return false;
  const auto First = llvm::find_if(
      Block->body(), [&](const Stmt *S) { return U.Index.holdsBatches(S); });
  const std::optional<LinePoint> Point =
      First == Block->body_end() ? std::nullopt : U.Text.before(*First);
  if (!Point)
    return false;
  Fact.In = U.Functions.of(In);
  Fact.SetUp = *Point;
  setGroup(Fact, Block, *First, U);
  return true;
}

/// The block that an optimizer is made in, and the statement in it; for a
/// constructor's initialiser its body.
const CompoundStmt *OptimizerFacts::setUpBlock(const Stmt **Child) const {
  if (!Initialiser)
    return block(Child, /*AroundSwitch=*/true);
  *Child = nullptr;
  return blockOf(Function->getBody());
}

void accel::migrate::setGroup(OptimizerFact &Fact, const CompoundStmt *Block,
                              const Stmt *Until, const Unit &U) {
  const SourceManager &SM = U.Text.SM;
  Fact.Block = SM.getFileOffset(SM.getFileLoc(Block->getBeginLoc()));
  for (const Stmt *S : Block->body()) {
    if (S == Until)
      break;
    Fact.Trainings += U.Index.holdsBatches(S);
  }
}

const Stmt *accel::migrate::lastSetUp(const CompoundStmt *Block,
                                      const Stmt *From,
                                      const ValueDecl *Optimizer,
                                      llvm::ArrayRef<const ValueDecl *> Models,
                                      const ProgramIndex &Index) {
  auto IsModel = [&](const ValueDecl *Place) {
    return Place && llvm::is_contained(Models, Place);
  };
  const Stmt *Last = From;
  bool Behind = From == nullptr;
  for (const Stmt *S : Block->body()) {
    if (Behind && Index.holdsBatches(S))
      break; // Whatever comes behind comes too late.
    Behind |= S == From;
    if (!Behind)
      continue;
    const auto *D = dyn_cast<DeclStmt>(S);
    if (D && llvm::any_of(D->decls(), [&](const Decl *Declared) {
          return IsModel(dyn_cast<ValueDecl>(Declared));
        }))
      Last = S;
    const Expr *E = plain(dyn_cast<Expr>(S));
    if (const auto *O = dyn_cast_or_null<CXXOperatorCallExpr>(E);
        O && O->getOperator() == OO_Equal && IsModel(placeOf(O->getArg(0))))
      Last = S;
    const auto *Call = dyn_cast_or_null<CXXMemberCallExpr>(E);
    if (!Call)
      continue;
    const llvm::StringRef Name = nameOf(Call->getMethodDecl());
    const ValueDecl *Object = placeOf(Call->getImplicitObjectArgument());
    if (((Name == "to" || Name == "reset") && IsModel(Object)) ||
        (Optimizer && Name == "add_param_group" && Object == Optimizer))
      Last = S;
  }
  return Last;
}

/// Whether `Init` only names an optimizer that is made elsewhere, or none.
bool OptimizerFacts::namesAnother(const Expr *Init) {
  Init = plain(Init);
  while (true) {
    const auto *List = dyn_cast<InitListExpr>(Init);
    const auto *Made = dyn_cast<CXXConstructExpr>(Init);
    if (!List && (!Made || isMade(Made->getConstructor()->getParent())))
      break;
    const unsigned Parts = List ? List->getNumInits() : Made->getNumArgs();
    if (Parts != 1)
      return Parts == 0;
    Init = plain(List ? List->getInit(0) : Made->getArg(0));
  }
  // std::get_if<torch::optim::SGD>(&rule), std::any_cast, std::addressof
  static const llvm::StringSet<> Finds = {"get_if", "get", "any_cast", "addressof",
                                          "dynamic_pointer_cast", "static_pointer_cast"};
  if (const FunctionDecl *F = calleeOf(Init);
      F && isInStd(F) && Finds.count(nameOf(F)))
    return true;
  // unique_ptr's and shared_ptr's own type in a type of the base class.
  const auto *Number = dyn_cast<IntegerLiteral>(Init);
  return isa<CXXNullPtrLiteralExpr, GNUNullExpr>(Init) ||
         (Number && Number->getValue().isZero()) || placeOf(Init) != nullptr;
}

/// Where models and an optimizer, if it has a name, are prepared; false where there
/// is no place for it.
bool OptimizerFacts::setUp(OptimizerFact &Fact, const ValueDecl *Optimizer,
                           llvm::ArrayRef<const ValueDecl *> Models) {
  const Stmt *Child = nullptr;
  const CompoundStmt *Block = setUpBlock(&Child);
  if (!Block)
    return false;
  std::optional<LinePoint> Point;
  if (const Stmt *Last = lastSetUp(Block, Child, Optimizer, Models, Index))
    Point = Text.afterInMacro(Last);
  else if (Block == Function->getBody())
    Point = Text.topOf(Block, Function->getBeginLoc());
  else
    Point = Text.topOf(Block);
  if (!Point)
    return false;
  // Also for a constructor's initialiser.
  Fact.In = Lambdas.empty() ? Functions.of(Function) : here();
  for (const ValueDecl *Model : Models)
    Fact.Models.push_back(objectOf(Model, Function));
  Fact.SetUp = *Point;
  setGroup(Fact, Block, Child, *this);
  return true;
}

/// The same for an optimizer that `Holder` holds; says so where there is no place.
bool OptimizerFacts::setUpHolder(OptimizerFact &Fact, const ValueDecl *Holder,
                                 llvm::ArrayRef<const ValueDecl *> Models,
                                 SourceLocation Loc) {
  Fact.Object = objectOf(Holder, Function);
  if (setUp(Fact, Holder, Models))
    return true;
  say("ACL0182", Loc,
      "there is no line behind the optimizer '" + Holder->getNameAsString() +
          "' on which it could be prepared, so that it stays LibTorch's",
      PrepareByHand);
  return false;
}

/// `Holder` is given what `Init` makes; `Declared` is where its type is
/// spelled, when that is what makes it.
void OptimizerFacts::optimizerMade(const ValueDecl *Holder,
                               const DeclaratorDecl *Declared,
                               const Expr *Init) {
  const std::string Name = "'" + Holder->getNameAsString() + "'";
  const SourceLocation Loc = Init->getExprLoc();
  OptimizerFact Fact;
  std::vector<const ValueDecl *> Models;
  bool IsSpelled = true;
  if (callsFactory(Init)) {
    Models = modelsGiven(Init);
  } else {
    const Making Made = makingOf(Declared, Init);
    const CXXRecordDecl *Class =
        Made.Class ? Made.Class : optimizerOf(Holder->getType());
    if (!(Made.Understood ? canTakePart(Class) : isTorch(Class)))
      return say("ACL0182", Loc,
                    "the optimizer " + Name + " is of the class '" +
                        Class->getNameAsString() + "' and stays that",
                    PrepareByHand);
    // Where no model is seen, the optimizer knows the parameters.
    IsSpelled = Made.Understood;
    if (IsSpelled) {
      Fact.TypeNames = Made.TypeNames;
      Models = modelsOf(Made.First, Fact);
    } else {
      Models = modelsGiven(Init); // Of a std::function, say.
    }
  }
  if (isBeforeMain()) {
    Fact.In = Functions.of(Function);
    if (!Fact.TypeNames.empty())
      Program.Optimizers.push_back(std::move(Fact));
    return;
  }
  if (!setUpHolder(Fact, Holder, Models, Loc))
    return;
  if (!IsSpelled && !Held.isDeclared(Holder))
    say("ACL0182", Loc,
        "the type of the optimizer " + Name +
            " is not spelled where it is made, so that it may stay LibTorch's",
        "Nothing has to be done for the results. For gradient accumulation and "
        "fp16, write `accel::AcceleratedOptimizer<…>` in place of the "
        "optimizer's type where it is made.");
  Program.Optimizers.push_back(std::move(Fact));
}

void OptimizerFacts::variable(const VarDecl *V) {
  if (V->isCXXForRangeDecl() && !V->getType()->isReferenceType())
    if (const CXXRecordDecl *D = recordOf(V->getType());
        D && isTorch(D) && nameOf(D) == "OptimizerParamGroup")
      say("ACL0176", V->getLocation(),
          "the loop goes over copies of the optimizer's parameter groups, so "
          "that what it sets has no effect; it is left so",
          "Write `auto&` if the options are to change.");
  if (optimizerOf(V->getType()))
    optimizerVariable(V);
  else if (!schedulerOf(V->getType()))
    optimizersIn(V);
  else if (!V->getType()->isReferenceType())
    schedulerMade(V, V->getInit());
}

void OptimizerFacts::construct(const CXXConstructExpr *E) {
  if (isOrDerives(E->getConstructor()->getParent(), "torch::optim::Optimizer"))
    strayOptimizer(E);
}

void OptimizerFacts::newObject(const CXXNewExpr *E) {
  if (optimizerOf(E->getAllocatedType()))
    strayOptimizer(E);
}

void OptimizerFacts::namedCall(const CallExpr *E, const FunctionDecl *F,
                               llvm::StringRef Name) {
  const auto Clip = [&](EditKind Kind) {
    if (std::optional<TextRange> R = calledName(E->getCallee()))
      edit(Kind, *R);
  };
  if (isInStd(F) && (Name == "make_unique" || Name == "make_shared") &&
      optimizerOf(F->getReturnType()))
    strayOptimizer(E);
  else if (isInStd(F) && isa<CXXMemberCallExpr>(E) &&
           (Name == "emplace" || Name == "emplace_back"))
    emplaced(cast<CXXMemberCallExpr>(E));
  else if (!isTorch(F))
    return;
  else if (Name == "add_param_group")
    addedGroup(E);
  else if (Name == "clip_grad_norm_")
    Clip(EditKind::ClipNorm);
  else if (Name == "clip_grad_value_")
    Clip(EditKind::ClipValue);
}

void OptimizerFacts::optimizerVariable(const VarDecl *V) {
  // What a lambda captures by a name of its own has none outside.
  if (V->getType()->isReferenceType() || V->isInitCapture())
    return;
  if (!V->getInit() || namesAnother(V->getInit())) {
    // A pointer is filled later, or names what another one holds.
    if (isOptimizerByValue(V->getType()) && V->hasLocalStorage() &&
        !Held.isDeclared(V))
      say("ACL0182", V->getLocation(),
             "the optimizer '" + V->getNameAsString() +
                 "' is not made where it is declared, and stays LibTorch's",
             PrepareByHand);
    return;
  }
  optimizerMade(V, V, V->getInit());
}

void OptimizerFacts::memberInitialiser(const CXXCtorInitializer *Init) {
  const FieldDecl *Member = Init->getMember();
  if (!Member || !Init->getInit())
    return;
  const Expr *Given = Init->getInit();
  const auto *Default = dyn_cast<CXXDefaultInitExpr>(Given);
  if (Default)
    Given = Default->getExpr();
  if (schedulerOf(Member->getType()) && (Init->isWritten() || Default))
    schedulerMade(Member, Given);
  if (!optimizerOf(Member->getType()) || Member->getType()->isReferenceType())
    return;
  if (!namesAnother(Given))
    return optimizerMade(Member, Member, Given);
  if (isOptimizerByValue(Member->getType()) && !Held.isDeclared(Member))
    say("ACL0182", Init->getSourceLocation(),
           "the optimizer '" + Member->getNameAsString() +
               "' is copied from another one, and stays LibTorch's",
           PrepareByHand);
}

/// `optimizer = std::make_unique<…>(…)`, `optimizer.reset(new …)`.
void OptimizerFacts::assigned(const Expr *To, const Expr *Made) {
  To = plain(To); // reset() is a method of shared_ptr's base.
  if (schedulerOf(To->getType()) || !optimizerOf(To->getType()) ||
      namesAnother(Made))
    return;
  if (const ValueDecl *Holder = placeOf(To))
    optimizerMade(Holder, nullptr, Made);
}

/// The type X of `std::optional<X>`, as it is spelled in a declaration.
static std::optional<SourceRange> typeInOptional(const ValueDecl *V) {
  const auto *D = dyn_cast<DeclaratorDecl>(V);
  if (!D || !D->getTypeSourceInfo())
    return std::nullopt;
  TypeLoc Loc = D->getTypeSourceInfo()->getTypeLoc().getUnqualifiedLoc();
  if (const auto Elaborated = Loc.getAs<ElaboratedTypeLoc>())
    Loc = Elaborated.getNamedTypeLoc();
  const auto Template = Loc.getAs<TemplateSpecializationTypeLoc>();
  return Template && Template.getNumArgs() == 1
             ? spellingOf(Template.getArgLoc(0).getTypeSourceInfo())
             : std::nullopt;
}

/// `optimizer.emplace(net->parameters(), 0.1)`, of a std::optional, and
/// `optimizers.emplace_back(net->parameters(), 0.1)`, of a list.
void OptimizerFacts::emplaced(const CXXMemberCallExpr *E) {
  if (!isOptimizerByValue(E->getType().getNonReferenceType()) ||
      E->getNumArgs() == 0)
    return;
  const Expr *Object = E->getImplicitObjectArgument();
  const ValueDecl *Holder =
      optimizerOf(Object->getType()) ? placeOf(Object) : nullptr;
  if (!Holder) {
    prepareModelsOf(E->getArg(0));
    return;
  }
  OptimizerFact Fact;
  // In a template the class of the optimizer is known here, and not there.
  if (canTakePart(optimizerOf(Object->getType())))
    if (const std::optional<SourceRange> Spelled = typeInOptional(Holder))
      if (const std::optional<TextRange> Type = Text.range(*Spelled))
        Fact.TypeNames = {*Type};
  if (setUpHolder(Fact, Holder, modelsOf(E->getArg(0)), E->getExprLoc()))
    Program.Optimizers.push_back(std::move(Fact));
}

/// A function that makes an optimizer for its caller, who prepares it.
void OptimizerFacts::returned(const ReturnStmt *S) {
  const Expr *E = S->getRetValue();
  const FunctionDecl *Returns =
      Lambdas.empty() ? Function : operatorOf(Lambdas.back());
  if (!E || !optimizerOf(E->getType()) || !Returns ||
      isOrDerives(recordOf(Returns->getReturnType()),
                  "torch::optim::Optimizer") ||
      namesAnother(E) || callsFactory(E))
    return;
  const Making Made = makingOf(nullptr, E);
  if (!Made.Understood || !canTakePart(Made.Class))
    return say("ACL0182", S->getBeginLoc(),
                  "the type of the optimizer that is returned is not spelled "
                  "here, so that it stays LibTorch's",
                  PrepareByHand);
  Program.Optimizers.push_back({here(), Made.TypeNames});
}

/// Whether objects of the class have an optimizer of their own.
static bool holdsOptimizer(const CXXRecordDecl *D) {
  D = D ? D->getDefinition() : nullptr;
  if (!D)
    return true;
  return llvm::any_of(D->fields(),
                      [](const FieldDecl *F) {
                        return isOptimizerByValue(F->getType());
                      }) ||
         llvm::any_of(D->bases(), [](const CXXBaseSpecifier &B) {
           return holdsOptimizer(B.getType()->getAsCXXRecordDecl());
         });
}

/// Templates of the program may be specialised for LibTorch's optimizers, and
/// the one that takes its place is one: they are given the class as before.
void OptimizerFacts::templateNamed(const TemplateSpecializationTypeLoc &Loc) {
  const CXXRecordDecl *Made = Loc.getType()->getAsCXXRecordDecl();
  if (!Made || isLibrary(Made) || holdsOptimizer(Made))
    return;
  for (unsigned I = 0; I < Loc.getNumArgs(); ++I) {
    const TemplateArgumentLoc Arg = Loc.getArgLoc(I);
    if (Arg.getArgument().getKind() != TemplateArgument::Type)
      continue;
    const auto Type =
        Arg.getTypeSourceInfo()->getTypeLoc().getAs<DecltypeTypeLoc>();
    const CXXRecordDecl *Class =
        Type && isOptimizerByValue(Type.getType()) ? recordOf(Type.getType()) : nullptr;
    if (Class && isTorch(Class))
      if (std::optional<TextRange> R = editable(Type.getSourceRange()))
        Program.OptimizerTypes.push_back({here(), *R, qualifiedName(Class)});
  }
}

void OptimizerFacts::schedulerMade(const DeclaratorDecl *V, const Expr *Init) {
  const Making Made = makingOf(V, Init);
  const CXXRecordDecl *Class = schedulerOf(V->getType());
  const std::string Name = "the scheduler '" + V->getNameAsString() + "'";
  const auto Stays = [&](const std::string &Why) {
    say("ACL0178", V->getLocation(),
        Why + ": each call is one step, also while gradients accumulate",
        "Nothing has to be done without gradient accumulation.");
  };
  if (!isTorch(Class))
    return Stays(Name + " is of a class of the program and stays as it is");
  if (!Init || !Made.Understood)
    return Stays("the type of " + Name +
                 " is not spelled where it is made, so that it stays "
                 "LibTorch's");
  for (const TextRange &Type : Made.TypeNames)
    edit(EditKind::SchedulerType, Type);
  // std::unique_ptr<torch::optim::StepLR> scheduler, StepLR *scheduler
  if (const TypeSourceInfo *Type = V->getTypeSourceInfo();
      Type && recordOf(V->getType()) != Class && nameOf(Class) != "LRScheduler")
    for (const SourceRange Held : namedIn(Type->getTypeLoc(), Class))
      edit(EditKind::SchedulerType, Held);
}
