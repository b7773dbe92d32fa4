//===- FactFinder.cpp - What a function sets up, prints and saves ---------===//

#include "FactFinder.h"

#include "AstVisitor.h"
#include "Quiet.h"
#include "TorchTypes.h"

#include "clang/Lex/Lexer.h"

using namespace accel::migrate;
using namespace clang;

namespace {

class Walk : public AstPathVisitor {
public:
  explicit Walk(FactFinder &Finder) : Finder(Finder) {}


  bool TraverseStmt(Stmt *S) override {
    if (!S)
      return true;
    if (Finder.skips(S))
      return true;
    Finder.Path.push_back(S);
    const bool Result = AstPathVisitor::TraverseStmt(S);
    Finder.Path.pop_back();
    return Result;
  }
  bool TraverseLambdaExpr(LambdaExpr *L) override {
    Finder.Lambdas.push_back(L);
    const bool Result = AstPathVisitor::TraverseLambdaExpr(L);
    Finder.Lambdas.pop_back();
    return Result;
  }

  bool VisitVarDecl(VarDecl *V) override {
    Finder.variable(V);
    return true;
  }
  bool VisitCallExpr(CallExpr *E) override {
    Finder.call(E);
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    Finder.construct(E);
    return true;
  }
  bool VisitCXXNewExpr(CXXNewExpr *E) override {
    Finder.newObject(E);
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    Finder.name(E);
    return true;
  }
  bool VisitTemplateSpecializationTypeLoc(
      TemplateSpecializationTypeLoc Loc) override {
    Finder.templateNamed(Loc);
    return true;
  }
  bool VisitReturnStmt(ReturnStmt *S) override {
    Finder.returned(S);
    return true;
  }
#define CONDITIONAL(Class)                                                     \
  bool Visit##Class(Class *S) override {                                       \
    Finder.decision(S, S->getCond());                                          \
    return true;                                                               \
  }
  CONDITIONAL(IfStmt)
  CONDITIONAL(WhileStmt)
  CONDITIONAL(DoStmt)
  CONDITIONAL(ForStmt)
  CONDITIONAL(SwitchStmt)
  CONDITIONAL(ConditionalOperator)
#undef CONDITIONAL
  bool VisitBinaryOperator(BinaryOperator *E) override {
    if (E->isLogicalOp())
      Finder.decision(E->getRHS(), E->getLHS());
    Finder.assignment(E);
    return true;
  }
  bool VisitCXXForRangeStmt(CXXForRangeStmt *S) override {
    Finder.range(S);
    return true;
  }

private:
  FactFinder &Finder;
};

} // namespace

void FactFinder::run(const FunctionDecl *F) {
  Function = F;
  if (Index.OfMainProcess.count(F->getCanonicalDecl())) {
    llvm::append_range(Files, updatedFiles(F, Context));
    return;
  }
  Walk W(*this);
  if (const auto *C = dyn_cast<CXXConstructorDecl>(F))
    for (const CXXCtorInitializer *Init : C->inits()) {
      Initialiser = Init->getInit();
      memberInitialiser(Init);
      if (Init->isWritten())
        W.TraverseStmt(Init->getInit());
    }
  // std::ostream& out = std::cout, which stands before the body, too.
  for (const ParmVarDecl *P : F->parameters())
    if (P->hasDefaultArg() && !P->hasInheritedDefaultArg() &&
        !P->hasUnparsedDefaultArg() && !P->hasUninstantiatedDefaultArg()) {
      Initialiser = P->getDefaultArg();
      W.TraverseStmt(const_cast<Expr *>(P->getDefaultArg()));
    }
  Initialiser = nullptr;
  W.TraverseStmt(F->getBody());
  // What a class makes without a constructor of its own is prepared where it
  // trains.
  const auto *Method = dyn_cast<CXXMethodDecl>(F);
  if (Method && Index.trainsDirectly(F) && !isa<CXXConstructorDecl>(F))
    for (const FieldDecl *Member : Method->getParent()->fields())
      optimizerOfDefault(Member);
}

namespace {
/// Streams in an initialiser that stands in no function.
class InitialiserWalk : public AstVisitor {
public:
  explicit InitialiserWalk(FactFinder &Finder) : Finder(Finder) {}
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    Finder.name(E);
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    if (isFileStream(E->getConstructor()->getParent()))
      Finder.construct(E);
    return true;
  }

private:
  FactFinder &Finder;
};
} // namespace

void FactFinder::field(const FieldDecl *F, const CXXRecordDecl *Owner,
                       bool Early) {
  if (!F->hasInClassInitializer() || !F->getInClassInitializer())
    return;
  seedField(F, Owner, Early);
  TrainingProgram Found;
  FactFinder Inner(Text, Index, Differs, Cuts, Functions, Found);
  Inner.Initialiser = F->getInClassInitializer();
  InitialiserWalk(Inner).TraverseStmt(
      const_cast<Expr *>(F->getInClassInitializer()));
  takeEarly(std::move(Found), F, Early);
  llvm::append_range(Files, Inner.Files);
}

void FactFinder::global(const VarDecl *V) {
  if (!V->getInit())
    return;
  TrainingProgram Found;
  FactFinder Inner(Text, Index, Differs, Cuts, Functions, Found);
  Inner.Initialiser = V->getInit();
  InitialiserWalk(Inner).TraverseStmt(const_cast<Expr *>(V->getInit()));
  takeEarly(std::move(Found), V, /*Early=*/true);
}

/// What an initialiser opens and prints to; `Early`: before main, when there is
/// no accelerator.
void FactFinder::takeEarly(TrainingProgram &&Found, const ValueDecl *D,
                           bool Early) {
  llvm::append_range(Program.Findings, Found.Findings);
  if (!Early) {
    llvm::append_range(Program.Prints, Found.Prints);
    llvm::append_range(Program.Paths, Found.Paths);
    return;
  }
  if (!Found.Prints.empty())
    refuse("ACL0152", D->getLocation(),
           "'" + D->getNameAsString() +
               "' is made before main begins, when no accelerator exists: what "
               "goes to it every process prints");
  if (!Found.Paths.empty())
    refuse("ACL0137", D->getLocation(),
           "'" + D->getNameAsString() +
               "' opens a file to write it before main begins, when no "
               "accelerator exists",
           "Open it in main.");
}

bool FactFinder::inSamples() const {
  for (const LambdaExpr *L : Lambdas)
    if (Index.loadsSamples(L))
      return true;
  return Index.loadsSamples(Function);
}

FunctionId FactFinder::here() {
  if (!Lambdas.empty())
    return Functions.of(Lambdas.back());
  return Initialiser ? Functions.ofInitialiser(Initialiser)
                     : Functions.of(Function);
}

const CompoundStmt *FactFinder::block(const Stmt **Child) const {
  for (size_t I = Path.size(); I-- > 0;)
    if (const auto *Block = dyn_cast<CompoundStmt>(Path[I])) {
      if (Child)
        *Child = I + 1 < Path.size() ? Path[I + 1] : nullptr;
      return Block;
    }
  return nullptr;
}

bool FactFinder::inLoop() const {
  for (const Stmt *S : Path)
    if (isa<ForStmt, WhileStmt, DoStmt, CXXForRangeStmt>(S))
      return true;
  return false;
}

void FactFinder::refuse(llvm::StringRef Id, SourceLocation Loc,
                        std::string Message, std::string Remedy) {
  Program.Findings.push_back(
      Text.finding(Id, Loc, std::move(Message), std::move(Remedy)));
}

void FactFinder::problem(SourceLocation Loc) {
  const SourceText::Problem &P = Text.problem();
  refuse(P.Id, Loc, P.Message, P.Remedy);
}

std::optional<TextRange> FactFinder::editable(SourceRange Range) {
  std::optional<TextRange> R = Text.range(Range);
  if (!R)
    problem(Range.getBegin());
  return R;
}

/// The name of what is called, with its qualifier, without template arguments.
std::optional<TextRange> FactFinder::nameOf(const Expr *Callee) {
  const auto *Ref = dyn_cast<DeclRefExpr>(Callee->IgnoreParenImpCasts());
  if (!Ref)
    return std::nullopt; // Called through a pointer.
  return editable({Ref->getBeginLoc(), Ref->getLocation()});
}

void FactFinder::variable(const VarDecl *V) {
  if (isa<ParmVarDecl>(V) || V->isImplicit())
    return;
  if (V->isCXXForRangeDecl() && !V->getType()->isReferenceType())
    if (const CXXRecordDecl *D = recordOf(V->getType());
        D && isTorch(D) && D->getIdentifier() &&
        D->getName() == "OptimizerParamGroup")
      refuse("ACL0176", V->getLocation(),
             "the loop goes over copies of the optimizer's parameter groups, so "
             "that what it sets has no effect; it is left so",
             "Write `auto&` if the options are to change.");
  if (optimizerOf(V->getType()))
    optimizerVariable(V);
  else if (schedulerOf(V->getType()))
    schedulerVariable(V);
  else
    deviceVariable(V);
}

void FactFinder::construct(const CXXConstructExpr *E) {
  const CXXRecordDecl *D = E->getConstructor()->getParent();
  if (isOrDerives(D, "torch::optim::Optimizer"))
    strayOptimizer(E);
  deviceObject(E);
  hazardousObject(E);
  if (!E->getConstructor()->isCopyOrMoveConstructor())
    differingArgument(E, E->getConstructor(), {E->getArgs(), E->getNumArgs()});
  if (!D->getIdentifier() || !isInStd(D))
    return;
  if (isFileStream(D))
    openStream(E, D, {E->getArgs(), E->getNumArgs()});
  if (D->getName() == "thread" || D->getName() == "jthread")
    if (E->getNumArgs() > 0 && !E->getConstructor()->isCopyOrMoveConstructor())
      threadStarts(E, {E->getArgs(), E->getNumArgs()});
}

void FactFinder::call(const CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  if (!F)
    return;
  deviceCall(E);
  differingArgument(E, F, {E->getArgs(), E->getNumArgs()});
  if (drawsOnHost(E))
    hostDraw(E);
  else if (seeds(F) && E->getNumArgs() >= 1)
    seed(E, E->getArg(0));
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
      O && O->getOperator() == OO_Equal)
    assigned(O->getArg(0), O->getArg(1));
  if (const auto *M = dyn_cast<CXXMemberCallExpr>(E);
      M && isInStd(F) && F->getIdentifier() && F->getName() == "reset" &&
      E->getNumArgs() == 1)
    assigned(M->getImplicitObjectArgument(), E->getArg(0));
  if (!F->getIdentifier()) {
    hazardousCall(E, F);
    return;
  }
  const llvm::StringRef Name = F->getName();
  if (Name == "make_data_loader" && isTorch(F)) {
    if (std::optional<TextRange> R = nameOf(E->getCallee()))
      Program.Loaders.push_back({here(), *R});
  } else if (Name == "add_param_group" && isTorch(F)) {
    addedGroup(E);
  } else if (Name == "clip_grad_norm_" && isTorch(F)) {
    if (std::optional<TextRange> R = nameOf(E->getCallee()))
      Program.NormClips.push_back({here(), *R});
  } else if (Name == "clip_grad_value_" && isTorch(F)) {
    if (std::optional<TextRange> R = nameOf(E->getCallee()))
      Program.ValueClips.push_back({here(), *R});
  } else if (Name == "save" && isTorch(F)) {
    save(E);
  } else if ((Name == "make_unique" || Name == "make_shared") && isInStd(F)) {
    if (optimizerOf(F->getReturnType()))
      strayOptimizer(E);
  }
  printCall(E, F);
  inputCall(E, F);
  fileCall(E, F);
  outputCall(E, F);
  hazardousCall(E, F);
}

void FactFinder::assignment(const BinaryOperator *E) {
  if (E->getOpcode() == BO_Assign)
    assigned(E->getLHS(), E->getRHS());
}

void FactFinder::newObject(const CXXNewExpr *E) {
  if (optimizerOf(E->getAllocatedType()))
    strayOptimizer(E);
}

void FactFinder::name(const DeclRefExpr *E) { printStream(E); }
