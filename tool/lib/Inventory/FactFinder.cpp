//===- FactFinder.cpp - One walk over a function's body -------------------===//

#include "FactFinder.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace accel::migrate {
class FactWalk : public AstPathVisitor {
public:
  explicit FactWalk(FactFinder &Finder) : Finder(Finder) {}

  bool TraverseStmt(Stmt *S) override {
    if (!S || Finder.At.Consumed.count(S))
      return true;
    Finder.At.Path.push_back(S);
    const bool Result = AstPathVisitor::TraverseStmt(S);
    Finder.At.Path.pop_back();
    return Result;
  }
  bool TraverseLambdaExpr(LambdaExpr *L) override {
    Finder.At.Lambdas.push_back(L);
    const bool Result = AstPathVisitor::TraverseLambdaExpr(L);
    Finder.At.Lambdas.pop_back();
    return Result;
  }

#define EACH(Handler)                                                          \
  {                                                                            \
    for (Subject *Each : Finder.Subjects)                                      \
      Each->Handler;                                                           \
    return true;                                                               \
  }
  bool VisitVarDecl(VarDecl *V) override {
    if (isa<ParmVarDecl>(V) || V->isImplicit())
      return true;
    EACH(variable(V))
  }
  bool VisitCallExpr(CallExpr *E) override {
    Finder.call(E);
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override EACH(construct(E))
  bool VisitCXXNewExpr(CXXNewExpr *E) override EACH(newObject(E))
  bool VisitDeclRefExpr(DeclRefExpr *E) override EACH(name(E))
  bool VisitTemplateSpecializationTypeLoc(
      TemplateSpecializationTypeLoc Loc) override EACH(templateNamed(Loc))
  bool VisitStmt(Stmt *S) override {
    if (isa<CompoundStmt, ForStmt, CXXForRangeStmt>(S))
      for (Subject *Each : Finder.Subjects)
        Each->region(S);
    if (const Expr *Condition = conditionOf(S))
      for (Subject *Each : Finder.Subjects)
        Each->decision(S, Condition);
    return true;
  }
  bool VisitReturnStmt(ReturnStmt *S) override EACH(returned(S))
  bool VisitCXXForRangeStmt(CXXForRangeStmt *S) override EACH(range(S))
  bool VisitBinaryOperator(BinaryOperator *E) override {
    for (Subject *Each : Finder.Subjects) {
      if (E->isLogicalOp())
        Each->decision(E->getRHS(), E->getLHS());
      if (E->getOpcode() == BO_Assign)
        Each->assigned(E->getLHS(), E->getRHS());
    }
    return true;
  }
#undef EACH

private:
  FactFinder &Finder;
};

/// Streams and devices in an initialiser that stands in no function.
class InitialiserWalk : public AstPathVisitor {
public:
  /// Of global variables closures are functions of their own.
  InitialiserWalk(FactFinder &Finder, bool IsGlobal)
      : Finder(Finder), IsGlobal(IsGlobal) {}
  bool TraverseLambdaExpr(LambdaExpr *L) override {
    return IsGlobal || AstPathVisitor::TraverseLambdaExpr(L);
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    Finder.Prints.name(E);
    Finder.Inputs.name(E);
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    Finder.Files.construct(E);
    Finder.Devices.construct(E);
    return true;
  }
  bool VisitCallExpr(CallExpr *E) override {
    if (const FunctionDecl *F = E->getDirectCallee(); F && F->getIdentifier())
      Finder.Files.namedCall(E, F, F->getName());
    return true;
  }

private:
  FactFinder &Finder;
  const bool IsGlobal;
};
} // namespace accel::migrate

FactFinder::FactFinder(const Unit &U, UnitFacts &All)
    : Unit(U), All(All), Devices(U, At), Decides(U, At, All.Differs),
      Random(U, At, All.Differs, All.Draws), Loaders(U, At), Optimizers(U, At, All.Held),
      Prints(U, At), Inputs(U, At), Files(U, At, All.Files),
      Outputs(
          U, At,
          [&D = All.Differs](auto Path, auto *F) {
            return D.isReachedByAll(Path, F) && D.isCalledByAll(F);
          },
          All.Cuts, All.Files),
      Dangers(U, At) {}

void FactFinder::run(const FunctionDecl *F) {
  At.Function = F;
  if (Index.OfMainProcess.count(F->getCanonicalDecl())) {
    llvm::append_range(All.Files, updatedFiles(F, Index.Context));
    return;
  }
  FactWalk W(*this);
  for (const CXXCtorInitializer *Init : initsOf(F)) {
    At.Initialiser = Init->getInit();
    for (Subject *Each : Subjects)
      Each->memberInitialiser(Init);
    if (Init->isWritten())
      W.TraverseStmt(Init->getInit());
  }
  // std::ostream& out = std::cout, which stands before the body, too; or in
  // another declaration.
  for (const FunctionDecl *Declared : F->redecls())
    for (const ParmVarDecl *P : Declared->parameters())
      if (P->hasDefaultArg() && !P->hasInheritedDefaultArg() &&
          !P->hasUnparsedDefaultArg() && !P->hasUninstantiatedDefaultArg()) {
        At.Initialiser = P->getDefaultArg();
        W.TraverseStmt(const_cast<Expr *>(P->getDefaultArg()));
      }
  At.Initialiser = nullptr;
  W.TraverseStmt(F->getBody());
  for (Subject *Each : Subjects)
    Each->end();
}

void FactFinder::call(const CallExpr *E) {
  const FunctionDecl *F = E->getDirectCallee();
  if (!F)
    return;
  const Expr *To = nullptr, *Made = nullptr;
  if (operatorCall(E, OO_Equal)) {
    To = E->getArg(0);
    Made = E->getArg(1);
  } else if (const auto *M = dyn_cast<CXXMemberCallExpr>(E);
             M && stdNameOf(F) == "reset" && E->getNumArgs() == 1) {
    To = M->getImplicitObjectArgument();
    Made = E->getArg(0);
  }
  for (Subject *Each : Subjects) {
    Each->call(E, F);
    if (To)
      Each->assigned(To, Made);
    if (F->getIdentifier())
      Each->namedCall(E, F, F->getName());
  }
}

void FactFinder::field(const FieldDecl *F, const CXXRecordDecl *Owner,
                       bool Early) {
  if (!F->hasInClassInitializer() || !F->getInClassInitializer())
    return;
  Random.field(F, Owner, Early);
  initialiser(F, F->getInClassInitializer(), Early);
}

void FactFinder::global(const VarDecl *V) {
  Random.global(V);
  if (V->getInit())
    initialiser(V, V->getInit(), /*Early=*/true);
}

/// Makes of a stream that is named what can be made of it before main; false where
/// that is nothing.
static bool makeEarly(EditFact &Print) {
  static const std::map<EditKind, EditKind> Early = {
      {EditKind::PrintCout, EditKind::PrintEarlyCout},
      {EditKind::PrintCerr, EditKind::PrintEarlyCerr},
      {EditKind::PrintStdout, EditKind::PrintEarlyStdout}};
  const auto It = Early.find(Print.Kind);
  if (It == Early.end())
    return false;
  Print.Kind = It->second;
  return !Print.InMacro;
}

/// What an initialiser opens and prints to, and the device that it names;
/// `Early`: before main, when there is no accelerator.
void FactFinder::initialiser(const ValueDecl *D, const Expr *Init,
                             bool Early) {
  TrainingProgram Found;
  FactFinder Inner({Text, Index, Functions, Found}, All);
  Inner.At.Initialiser = Init;
  InitialiserWalk(Inner, isa<VarDecl>(D)).TraverseStmt(const_cast<Expr *>(Init));
  llvm::append_range(Program.Findings, Found.Findings);
  const bool OpensFile = Found.hasEdits("main-process-path");
  llvm::erase_if(Found.Edits, [Early](const EditFact &E) {
    const bool Later = E.isOf("main-process-path") || E.isOf("device");
    return !(E.isOf("print") || (Later && !Early));
  });
  if (!Early) {
    llvm::append_range(Program.Edits, Found.Edits);
    return;
  }
  const auto *V = dyn_cast<VarDecl>(D);
  const bool IsConstant = V && (V->isConstexpr() || V->hasAttr<ConstInitAttr>());
  if (!IsConstant && llvm::all_of(Found.Edits, makeEarly))
    llvm::append_range(Program.Edits, Found.Edits);
  else if (!Found.Edits.empty())
    say("ACL0152", D->getLocation(),
        "'" + D->getNameAsString() +
            "' is made before main begins, when no accelerator exists: what "
            "goes to it every process prints");
  if (OpensFile)
    say("ACL0184", D->getLocation(),
        "'" + D->getNameAsString() +
            "' opens a file to write it before main begins, when no "
            "accelerator exists",
        "Open it in main.");
}
