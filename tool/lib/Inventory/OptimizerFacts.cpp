//===- OptimizerFacts.cpp - Optimizers, schedulers and their models -------===//

#include "FactFinder.h"
#include "TorchTypes.h"

#include "clang/AST/TypeLoc.h"

using namespace accel::migrate;
using namespace clang;

static constexpr char PrepareByHand[] =
    "Write `accel::AcceleratedOptimizer<…>` in place of the optimizer's type "
    "and call accelerator.prepare(model, optimizer) behind it, by hand.";

/// Where a type is spelled, without `const` and the like.
static std::optional<SourceRange> spellingOf(const TypeSourceInfo *Info) {
  if (!Info)
    return std::nullopt;
  const TypeLoc Loc = Info->getTypeLoc().getUnqualifiedLoc();
  if (Loc.getAs<AutoTypeLoc>())
    return std::nullopt;
  return Loc.getSourceRange();
}

/// The places where the type of what `V` holds is spelled, and the first
/// argument of its constructor.
std::vector<TextRange> FactFinder::typeNames(const VarDecl *V, bool &Understood,
                                             const Expr *&FirstArgument) {
  std::vector<TextRange> Result;
  Understood = true;
  auto Add = [&](SourceRange Range) {
    if (std::optional<TextRange> R = editable(Range))
      Result.push_back(*R);
    else
      Understood = false;
  };
  const Expr *Init = V->getInit() ? plain(V->getInit()) : nullptr;
  // make_unique's result in a unique_ptr of the base class, and the like.
  while (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Init)) {
    if (Made->getNumArgs() != 1 || isTorch(Made->getConstructor()->getParent()))
      break;
    Init = plain(Made->getArg(0));
  }
  const bool ByValue = recordOf(V->getType()) &&
                       isTorch(recordOf(V->getType())) &&
                       !V->getType()->isPointerType();
  if (ByValue)
    if (const auto Spelled = spellingOf(V->getTypeSourceInfo()))
      Add(*Spelled);
  if (const auto *Cast = dyn_cast_or_null<CXXFunctionalCastExpr>(Init)) {
    if (const auto Spelled = spellingOf(Cast->getTypeInfoAsWritten()))
      Add(*Spelled);
    Init = plain(Cast->getSubExpr());
  } else if (const auto *Made =
                 dyn_cast_or_null<CXXTemporaryObjectExpr>(Init)) {
    if (const auto Spelled = spellingOf(Made->getTypeSourceInfo()))
      Add(*Spelled);
  }
  if (const auto *New = dyn_cast_or_null<CXXNewExpr>(Init)) {
    Consumed.insert(New);
    if (const auto Spelled = spellingOf(New->getAllocatedTypeSourceInfo()))
      Add(*Spelled);
    Init = New->getConstructExpr();
  }
  if (const auto *Made = dyn_cast_or_null<CXXConstructExpr>(Init)) {
    Consumed.insert(Made);
    if (Made->getNumArgs() > 0)
      FirstArgument = Made->getArg(0);
  } else if (const auto *Call = dyn_cast_or_null<CallExpr>(Init)) {
    const FunctionDecl *F = Call->getDirectCallee();
    const auto *Ref =
        dyn_cast<DeclRefExpr>(Call->getCallee()->IgnoreParenImpCasts());
    if (F && F->getIdentifier() && isInStd(F) && Ref &&
        (F->getName() == "make_unique" || F->getName() == "make_shared") &&
        Ref->getNumTemplateArgs() == 1) {
      Consumed.insert(Call);
      Add(Ref->getTemplateArgs()[0].getSourceRange());
      if (Call->getNumArgs() > 0)
        FirstArgument = Call->getArg(0);
    } else {
      Understood = false;
    }
  } else {
    Understood = false;
  }
  if (Result.empty())
    Understood = false;
  return Result;
}

/// How something held by `V` is named where a reference, a holder or a
/// shared_ptr is taken.
static std::string objectOf(const VarDecl *V) {
  const CXXRecordDecl *D = recordOf(V->getType());
  const bool Pointer =
      V->getType().getNonReferenceType()->isPointerType() ||
      (D && D->getIdentifier() && D->getName() == "unique_ptr" && isInStd(D));
  return (Pointer ? "*" : "") + V->getNameAsString();
}

/// Behind the last statement of the optimizer's block that creates one of the
/// two or moves the model.
LinePoint FactFinder::setUpPoint(const VarDecl *Optimizer,
                                 const VarDecl *Model, bool &Good) {
  const Stmt *Child = nullptr;
  const CompoundStmt *Block = block(&Child);
  const Stmt *Last = Child;
  bool Behind = false;
  if (Block)
    for (const Stmt *S : Block->body()) {
      Behind |= S == Child;
      if (!Behind)
        continue;
      if (const auto *D = dyn_cast<DeclStmt>(S))
        for (const Decl *Declared : D->decls())
          if (Declared == Model)
            Last = S;
      if (const auto *E = dyn_cast<Expr>(S))
        if (const auto *Call = dyn_cast<CXXMemberCallExpr>(plain(E)))
          if (const CXXMethodDecl *M = Call->getMethodDecl();
              M && M->getIdentifier())
            if (const VarDecl *On =
                    variableOf(Call->getImplicitObjectArgument()))
              if ((M->getName() == "to" && On == Model) ||
                  (M->getName() == "add_param_group" && On == Optimizer))
                Last = S;
    }
  std::optional<LinePoint> Point;
  if (Last)
    Point = Text.after(Last);
  Good = Point.has_value();
  return Point ? *Point : LinePoint();
}

void FactFinder::optimizerVariable(const VarDecl *V) {
  if (V->getType()->isReferenceType() || !V->getInit()) {
    if (!V->getType()->isReferenceType() && !V->isImplicit() &&
        V->hasLocalStorage())
      refuse("ACL0116", V->getLocation(),
             "the optimizer '" + V->getNameAsString() +
                 "' is not made where it is declared",
             PrepareByHand);
    return;
  }
  const Expr *Parameters = nullptr;
  bool Understood = false;
  OptimizerFact Fact;
  Fact.TypeNames = typeNames(V, Understood, Parameters);
  const SourceLocation Loc = V->getLocation();
  const CXXRecordDecl *Class = optimizerOf(V->getType());
  // Behind a pointer to the base class stands what is constructed.
  static const std::set<std::string> Known = {
      "SGD",     "Adam",  "AdamW",    "RMSprop",
      "Adagrad", "LBFGS", "Optimizer"};
  if (!isTorch(Class) || !Known.count(Class->getNameAsString()))
    return refuse("ACL0156", Loc,
                  "the optimizer class '" + Class->getNameAsString() +
                      "' is not one that steps on averaged gradients alone",
                  "Use SGD, Adam, AdamW, RMSprop, Adagrad or LBFGS, or migrate "
                  "by hand.");
  if (!Understood)
    return refuse("ACL0116", Loc,
                  "how the optimizer '" + V->getNameAsString() +
                      "' is made is not understood",
                  PrepareByHand);
  if (V->hasGlobalStorage() || !Lambdas.empty())
    return refuse("ACL0116", Loc,
                  "the optimizer '" + V->getNameAsString() +
                      "' is not made in a function's own block",
                  "Make it once, before the loop, in the function that sets "
                  "the training up.");

  // model->parameters()
  const VarDecl *Model = nullptr;
  if (Parameters)
    if (const auto *Call = dyn_cast<CXXMemberCallExpr>(bare(Parameters)))
      if (const CXXMethodDecl *M = Call->getMethodDecl();
          M && M->getIdentifier() && M->getName() == "parameters") {
        const Expr *Object = Call->getImplicitObjectArgument();
        if (moduleOf(Object->getType()))
          Model = variableOf(Object);
      }
  // Where no model is seen, the optimizer knows the parameters.
  bool Good = false;
  Fact.In = here();
  Fact.Object = objectOf(V);
  Fact.Model = Model ? objectOf(Model) : "";
  Fact.SetUp = setUpPoint(V, Model, Good);
  const CompoundStmt *Block = block();
  if (!Good || !Block)
    return refuse("ACL0102", Loc,
                  "there is no line behind the optimizer on which it could be "
                  "prepared",
                  PrepareByHand);
  Fact.Block = Text.SM.getFileOffset(Text.SM.getFileLoc(Block->getBeginLoc()));
  Program.Optimizers.push_back(std::move(Fact));
}

void FactFinder::schedulerVariable(const VarDecl *V) {
  if (V->getType()->isReferenceType())
    return;
  const Expr *First = nullptr;
  bool Understood = V->getInit() != nullptr;
  SchedulerFact Fact;
  if (Understood)
    Fact.TypeNames = typeNames(V, Understood, First);
  const CXXRecordDecl *Class = schedulerOf(V->getType());
  if (!isTorch(Class))
    return refuse("ACL0178", V->getLocation(),
                  "the scheduler '" + V->getNameAsString() +
                      "' is of a class of the program and stays as it is: each "
                      "call is one step, also while gradients accumulate",
                  "Nothing has to be done without gradient accumulation.");
  if (!Understood)
    return refuse("ACL0157", V->getLocation(),
                  "how the scheduler '" + V->getNameAsString() +
                      "' is made is not understood",
                  "Write `accel::AcceleratedScheduler<…>` in place of its type "
                  "by hand.");
  Fact.In = here();
  Program.Schedulers.push_back(std::move(Fact));
}

/// An optimizer that is made elsewhere than in a variable's declaration.
void FactFinder::strayOptimizer(const Expr *E) {
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
  refuse("ACL0116", E->getExprLoc(),
         "an optimizer is made here that is not a local variable of the "
         "function",
         PrepareByHand);
}

/// Parameters that come later must come before prepare does.
void FactFinder::addedGroup(const CallExpr *E) {
  const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
  const VarDecl *Optimizer =
      Call ? variableOf(Call->getImplicitObjectArgument()) : nullptr;
  const Stmt *Child = nullptr;
  bool Here = false;
  if (const CompoundStmt *Block = block(&Child);
      Block && Child && isa<Expr>(Child) && plain(cast<Expr>(Child)) == E)
    for (const Stmt *S : Block->body())
      if (const auto *D = dyn_cast<DeclStmt>(S))
        for (const Decl *Declared : D->decls())
          Here |= Declared == Optimizer;
  if (!Here)
    refuse("ACL0116", E->getExprLoc(),
           "parameters are added to an optimizer at another place than the one "
           "that makes it",
           "Call accelerator.prepare(optimizer) again behind this, by hand.");
}
