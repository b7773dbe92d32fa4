//===- Callables.cpp - What a std::function may run -----------------------===//
//
// From a variable, a parameter, a field or a container that holds functions to
// the closures and functions that the program gives it, through calls,
// constructors, initialisers, assignments and returns. In doubt one too many:
// what is calculated with it stays right.
//
//===----------------------------------------------------------------------===//

#include "AstVisitor.h"
#include "Closures.h"
#include "ModelCalls.h"
#include "ProgramIndex.h"
#include "TorchTypes.h"

#include "clang/AST/DeclTemplate.h"

using namespace accel::migrate;
using namespace clang;

static bool isStdFunction(QualType T) {
  return stdNameOf(recordOf(T)) == "function";
}

/// A std::function, a pointer to a function, or a container of such.
static bool holdsCallables(QualType T, unsigned Depth = 0) {
  if (T.isNull() || Depth > 3)
    return false;
  T = T.getNonReferenceType();
  if (T->isFunctionPointerType() || T->isFunctionType() || isStdFunction(T))
    return true;
  const CXXRecordDecl *D = recordOf(T);
  return isInStd(D) && llvm::any_of(typeArgumentsOf(D), [&](QualType Arg) {
           return holdsCallables(Arg, Depth + 1);
         });
}

namespace {
/// Who is given what. Keys are variables, parameters, fields, and functions that
/// return what they are given.
class CallableFlow : public AstVisitor {
public:
  explicit CallableFlow(const ProgramIndex &Index) : Index(Index) {}

  bool shouldVisitTemplateInstantiations() const override { return true; }

  bool VisitVarDecl(VarDecl *V) override {
    if (V->getInit() && !V->isCXXForRangeDecl())
      declare(V, V->getInit());
    return true;
  }
  bool VisitCXXForRangeStmt(CXXForRangeStmt *S) override {
    declare(S->getLoopVariable(), S->getRangeInit());
    return true;
  }
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F)
      return true;
    if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
        O && O->isAssignmentOp())
      give(rootOf(O->getArg(0)), O->getArg(1));
    const llvm::ArrayRef<const Expr *> Args = passedBy(E);
    giveAll(F, Args);
    // steps.push_back([&] { … })
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
        Member && isInStd(F))
      for (const Expr *Arg : Args)
        give(rootOf(Member->getImplicitObjectArgument()), Arg);
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    giveAll(E->getConstructor(), {E->getArgs(), E->getNumArgs()});
    return true;
  }
  bool VisitExpr(Expr *E) override {
    const auto *List = dyn_cast<InitListExpr>(E);
    const CXXRecordDecl *D = List ? recordOf(List->getType()) : nullptr;
    if (!D || isInStd(D) || !D->getDefinition())
      return true;
    unsigned I = 0;
    for (const FieldDecl *Field : D->getDefinition()->fields())
      if (I < List->getNumInits())
        give(Field, List->getInit(I++));
    return true;
  }
  bool VisitBinaryOperator(BinaryOperator *E) override {
    if (E->isAssignmentOp())
      give(rootOf(E->getLHS()), E->getRHS());
    return true;
  }

  void walk(const FunctionDecl *F) {
    for (const CXXCtorInitializer *Init : initsOf(F)) {
      if (Init->isAnyMemberInitializer())
        give(Init->getAnyMember(), Init->getInit());
      TraverseStmt(Init->getInit());
    }
    TraverseStmt(F->getBody());
    if (holdsCallables(F->getReturnType()))
      for (const Expr *Value : valuesOf(F))
        take(F->getCanonicalDecl(), Value);
  }

  std::map<const ValueDecl *, std::set<const FunctionDecl *>> Runs;
  std::map<const ValueDecl *, std::set<const ValueDecl *>> From;

private:
  void declare(const VarDecl *V, const Expr *Init) {
    give(V, Init);
    if (const auto *Parts = dyn_cast<DecompositionDecl>(V))
      for (const BindingDecl *Part : Parts->bindings())
        give(Part, Init);
  }
  void giveAll(const FunctionDecl *F, llvm::ArrayRef<const Expr *> Args) {
    if (isLibrary(F))
      return;
    for (const FunctionDecl *Body : Index.bodiesOf(F))
      for (unsigned I = 0; I < Body->getNumParams() && I < Args.size(); ++I)
        give(Body->getParamDecl(I), Args[I]);
  }
  void give(const ValueDecl *To, const Expr *E) {
    if (To && E && holdsCallables(To->getType()))
      take(To, E);
  }
  void take(const ValueDecl *To, const Stmt *S) {
    if (!S)
      return;
    if (const auto *L = dyn_cast<LambdaExpr>(S)) {
      Runs[To].insert(operatorOf(L));
      return;
    }
    if (const auto *E = dyn_cast<Expr>(S))
      if (const CXXRecordDecl *D = recordOf(E->getType()); D && D->isLambda())
        Runs[To].insert(operatorOf(D));
    const ValueDecl *Named = referredTo(S);
    if (const auto *F = dyn_cast_or_null<FunctionDecl>(Named)) {
      if (Index.isOwn(F))
        for (const FunctionDecl *Body : Index.bodiesOf(F))
          Runs[To].insert(Body);
    } else if (Named && Named != To && holdsCallables(Named->getType())) {
      From[To].insert(Named);
    }
    // make_loss(name): what the function returns, not the function.
    if (const auto *Call = dyn_cast<CallExpr>(S))
      if (const FunctionDecl *F = Call->getDirectCallee(); F && Index.isOwn(F)) {
        for (const FunctionDecl *Body : Index.bodiesOf(F))
          From[To].insert(Body->getCanonicalDecl());
        return;
      }
    for (const Stmt *Child : S->children())
      take(To, Child);
  }

  const ProgramIndex &Index;
};
} // namespace

void ProgramIndex::findCallables() {
  CallableFlow Flow(*this);
  for (const FunctionDecl *F : Functions)
    Flow.walk(F);
  for (const VarDecl *V : Globals) {
    Flow.VisitVarDecl(const_cast<VarDecl *>(V));
    Flow.TraverseStmt(const_cast<Expr *>(V->getInit()));
  }
  for (bool Changed = true; Changed;) {
    Changed = false;
    for (const auto &[To, Sources] : Flow.From)
      for (const ValueDecl *Source : Sources)
        if (const auto It = Flow.Runs.find(Source); It != Flow.Runs.end()) {
          std::set<const FunctionDecl *> &Known = Flow.Runs[To];
          const size_t Before = Known.size();
          Known.insert(It->second.begin(), It->second.end());
          Changed |= Known.size() != Before;
        }
  }
  for (const auto &[Holder, Bodies] : Flow.Runs)
    Callables[Holder].append(Bodies.begin(), Bodies.end());
}

llvm::ArrayRef<const FunctionDecl *>
ProgramIndex::callablesOf(const CallExpr *Call) const {
  const Expr *Held = nullptr;
  if (operatorCall(Call, OO_Call) && isStdFunction(Call->getArg(0)->getType()))
    Held = Call->getArg(0);
  else if (!Call->getDirectCallee() && !isa<CXXMemberCallExpr>(Call))
    Held = Call->getCallee();
  return callablesIn(Held ? rootOf(Held) : nullptr);
}

llvm::ArrayRef<const FunctionDecl *>
ProgramIndex::callablesIn(const ValueDecl *Holder) const {
  const auto It = Holder ? Callables.find(Holder) : Callables.end();
  if (It == Callables.end())
    return {};
  return It->second;
}
