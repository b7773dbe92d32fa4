//===- Cut.cpp - Which tensors may be distributed -------------------------===//

#include "Cut.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ModelCalls.h"
#include "Code/ProgramIndex.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// Whether values of the type can have tensors in them: tensors, and any object
/// that is no number.
static bool mayHold(QualType T) {
  if (T.isNull())
    return false;
  if (holdsTensors(T) || isScriptInputs(T))
    return true;
  // The list in torch::cat({x, y}).
  if (const ArrayType *List = T->getAsArrayTypeUnsafe())
    return mayHold(List->getElementType());
  if (isHostNumber(T) && !recordOf(T))
    return false;
  const CXXRecordDecl *D = recordOf(T);
  if (nameOf(D).empty())
    return D;
  // Models and optimizers hold parameters.
  if (moduleOf(T) || optimizerOf(T) || loaderOf(T) || schedulerOf(T))
    return false;
  static const llvm::StringSet<> Plain = {"Scalar", "ArrayRef", "TensorOptions",
                                          "Device"};
  return !isInStd(D) && !Plain.count(nameOf(D));
}

/// Whether `E` is a parameter of a module, a list of them, or what a module gives.
static bool isOfModule(const Expr *E) {
  if (const auto *M = dyn_cast<MemberExpr>(E)) {
    const auto *Field = dyn_cast<FieldDecl>(M->getMemberDecl());
    return Field && isTensor(Field->getType()) &&
           isOrDerives(dyn_cast<CXXRecordDecl>(Field->getParent()),
                       "torch::nn::Module");
  }
  if (const std::optional<ModelCall> Call = modelCallOf(E))
    return moduleOf(Call->Model->getType()) ||
           isAnyModule(Call->Model->getType());
  const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
  const llvm::StringRef Name = torchNameOf(Call);
  return Name == "parameters" || Name == "named_parameters" ||
         (Name == "params" && !isTensor(Call->getObjectType()));
}

bool Cut::in(const Expr *E) const {
  E = plain(E);
  if (!E || isa<LambdaExpr>(E) || !mayHold(E->getType()))
    return false;
  if (Shared.count(E) || readsBatch(E) || (Kind == OfParameters && isOfModule(E)))
    return true;
  if (const ValueDecl *Named = declNamedBy(E))
    return Values.count(Named) != 0;
  if (const auto *M = dyn_cast<MemberExpr>(E))
    return Values.count(M->getMemberDecl()) != 0 || in(M->getBase());
  if (const auto *Call = dyn_cast<CallExpr>(E)) {
    if (Kind == ByArguments) {
      if (const std::optional<ModelCall> Model = modelCallOf(Call))
        return llvm::any_of(Model->Inputs,
                            [&](const Expr *Input) { return in(Input); });
      // autograd::grad({energy}, {x})
      if (torchNameOf(Call) == "grad" && !isa<CXXMemberCallExpr>(Call) &&
          Call->getNumArgs() > 1)
        return in(Call->getArg(1));
    }
    const FunctionDecl *F = Call->getDirectCallee();
    const auto Gives = [&](const FunctionDecl *Body) {
      return Returning.count(Body->getCanonicalDecl()) != 0;
    };
    if ((F && llvm::any_of(Index.bodiesOf(F), Gives)) ||
        llvm::any_of(Index.callablesOf(Call), Gives))
      return true;
    if (F && Index.isOwn(F))
      if (const auto *M = dyn_cast<CXXMethodDecl>(F); !M || !M->isVirtual())
        return false;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(Call)) {
      const Expr *Object = Member->getImplicitObjectArgument();
      if (in(Object))
        return true;
      // The gradient of x, where a model reads distribute(x).
      const llvm::StringRef Name = torchNameOf(Member);
      if ((Name == "grad" || Name == "mutable_grad") &&
          SharedWhereRead.count(placeOf(Object)))
        return true;
    }
  }
  for (const Stmt *Child : E->children())
    if (const auto *Inner = dyn_cast_or_null<Expr>(Child); Inner && in(Inner))
      return true;
  return false;
}

bool Cut::isReadIn(const Stmt *S) const {
  return existsIn(
      S,
      [&](const Stmt *Part) {
        const auto *E = dyn_cast<Expr>(Part);
        return E && (holdsTensors(E->getType()) || isBatch(E->getType())) &&
               in(E);
      },
      LambdaBodies::Skip);
}

/// The program's class whose forward `F` calls: SoftDTW for SoftDTW::apply of
/// torch::autograd::Function<SoftDTW>. Null where `F` is something else.
static const CXXRecordDecl *appliedBy(const FunctionDecl *F) {
  const auto *M = dyn_cast<CXXMethodDecl>(F);
  if (torchNameOf(M) != "apply" ||
      qualifiedName(M->getParent()) != "torch::autograd::Function")
    return nullptr;
  const CXXRecordDecl *Applied = recordOf(typeArgumentOf(M->getParent(), 0));
  return Applied ? Applied->getDefinition() : nullptr;
}

namespace accel::migrate {

/// One pass over a function; repeated until nothing is added.
class CutWalk : public AstPathVisitor {
public:
  CutWalk(Cut &C, const FunctionDecl *F) : C(C), Function(F) {}

  bool Changed = false;

  bool TraverseLambdaExpr(LambdaExpr *L) override {
    const FunctionDecl *Outside = Function;
    Function = operatorOf(L);
    const bool Result = AstPathVisitor::TraverseLambdaExpr(L);
    Function = Outside;
    return Result;
  }

  bool VisitVarDecl(VarDecl *V) override {
    if (V->getInit() && !V->isCXXForRangeDecl() && mayHold(V->getType()) &&
        C.in(V->getInit()))
      add(V);
    return true;
  }
  bool VisitCXXForRangeStmt(CXXForRangeStmt *S) override {
    const VarDecl *V = S->getLoopVariable();
    const Expr *Range = S->getRangeInit();
    if (isDistributedBy(Range, V->getType()) || C.in(Range))
      add(V);
    return true;
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (E->isAssignmentOp() && C.in(E->getArg(1)))
      assign(E->getArg(0));
    return true;
  }
  bool VisitReturnStmt(ReturnStmt *S) override {
    if (S->getRetValue() && C.in(S->getRetValue()))
      Changed |= C.Returning.insert(Function->getCanonicalDecl()).second;
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    give(E->getConstructor(), {E->getArgs(), E->getNumArgs()});
    return true;
  }
  // Rows{out}, Rows(out) of an aggregate
  bool VisitExpr(Expr *E) override {
    if (const auto *List = dyn_cast<InitListExpr>(E)) {
      if (const InitListExpr *Semantic =
              List->isSemanticForm() ? List : List->getSemanticForm())
        aggregate(E->getType(), Semantic->inits());
    } else if (const auto *List = dyn_cast<CXXParenListInitExpr>(E)) {
      aggregate(E->getType(), List->getInitExprs());
    } else if (const auto *Yields = dyn_cast<CoyieldExpr>(E)) {
      gives(Yields->getOperand(), Yields->getCommonExpr());
    }
    return true;
  }
  bool VisitStmt(Stmt *S) override {
    if (const auto *Returns = dyn_cast<CoreturnStmt>(S); Returns && Returns->getOperand())
      gives(Returns->getOperand(), Returns->getPromiseCall());
    return true;
  }
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    const llvm::ArrayRef<const Expr *> Args = passedBy(E);
    for (const FunctionDecl *Body : C.Index.callablesOf(E))
      giveTo(Body, Args);
    const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
    // outs | std::views::transform(f)
    if (operatorCall(E, OO_Pipe) && isInStd(F) && C.in(E->getArg(0)))
      eachIn<LambdaExpr>(E->getArg(1),
                         [&](const LambdaExpr *L) { addAll(operatorOf(L)); });
    if (!F || (O && (O->getOperator() != OO_Call || !isa<CXXMethodDecl>(F))))
      return true;
    give(F, Args);
    // list.push_back(x)
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
        Member && !C.Index.isOwn(F))
      if (const CXXMethodDecl *M = Member->getMethodDecl();
          M && !M->isConst() && !moduleOf(Member->getObjectType()) &&
          llvm::any_of(Args, [&](const Expr *Arg) { return C.in(Arg); }))
        assign(Member->getImplicitObjectArgument());
    // std::for_each, and std::ranges::for_each, which is an object.
    if (isInStd(F) && (O || !isa<CXXMethodDecl>(F)) &&
        llvm::any_of(Args, [&](const Expr *Arg) { return C.isReadIn(Arg); }))
      giveToStd(F, Args);
    // h.register_hook([](torch::Tensor g) { … }): the gradient lies as h does.
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
        Member && torchNameOf(Member) == "register_hook" && !Args.empty() &&
        C.in(Member->getImplicitObjectArgument()))
      for (const FunctionDecl *Called : calledBy(Args[0]))
        addAll(Called);
    return true;
  }

  void initialiser(const CXXCtorInitializer *Init) {
    if (Init->isAnyMemberInitializer() && Init->getInit() &&
        mayHold(Init->getAnyMember()->getType()) && C.in(Init->getInit()))
      add(Init->getAnyMember());
  }

private:
  /// co_yield x, co_return x: what the coroutine gives, by promise.yield_value(x), which is
  /// no code that is spelled.
  void gives(const Expr *Value, const Expr *ToPromise) {
    if (C.in(Value))
      Changed |= C.Returning.insert(Function->getCanonicalDecl()).second;
    if (!ToPromise)
      return;
    eachIn<CXXMemberCallExpr>(ToPromise, [&](const CXXMemberCallExpr *Call) {
      if (const CXXMethodDecl *M = Call->getMethodDecl())
        give(M, {Call->getArgs(), Call->getNumArgs()});
    });
  }

  /// The values of an aggregate's fields, behind those of its bases.
  void aggregate(QualType T, llvm::ArrayRef<const Expr *> Values) {
    const CXXRecordDecl *D = T->getAsCXXRecordDecl();
    if (!D || !D->hasDefinition() || Values.size() < D->getNumBases())
      return;
    Values = Values.drop_front(D->getNumBases());
    for (const FieldDecl *Field : D->fields()) {
      if (Values.empty())
        return;
      if (mayHold(Field->getType()) && C.in(Values.front()))
        add(Field);
      Values = Values.drop_front();
    }
  }

  void add(const ValueDecl *V) {
    if (!V || isa<FunctionDecl>(V))
      return;
    Changed |= C.Values.insert(V).second;
    if (const auto *Parts = dyn_cast<DecompositionDecl>(V))
      for (const BindingDecl *B : Parts->bindings()) {
        Changed |= C.Values.insert(B).second;
        if (const VarDecl *Holder = B->getHoldingVar())
          Changed |= C.Values.insert(Holder).second;
      }
  }

  void assign(const Expr *To) {
    To = plain(To);
    if (stdNameOf(calleeOf(To)) == "tie") {
      for (const Expr *Arg : cast<CallExpr>(To)->arguments())
        assign(Arg);
      return;
    }
    add(rootOf(To));
  }

  void give(const FunctionDecl *F, llvm::ArrayRef<const Expr *> Args) {
    if (const CXXRecordDecl *D = appliedBy(F))
      return apply(D, Args);
    if (isLibrary(F))
      return;
    for (const FunctionDecl *Body : C.Index.ownBodiesOf(F))
      giveTo(Body, Args);
  }
  void giveTo(const FunctionDecl *F, llvm::ArrayRef<const Expr *> Args) {
    for (unsigned I = 0; I < F->getNumParams() && I < Args.size(); ++I) {
      const ParmVarDecl *P = F->getParamDecl(I);
      if (!mayHold(P->getType()))
        continue;
      if (C.in(Args[I]))
        add(P);
      // What a model is given in any case says nothing of this argument.
      const QualType T = P->getType();
      if (C.Values.count(P) && !C.Supposed.count(P) && T->isReferenceType() &&
          !T->getPointeeType().isConstQualified())
        assign(Args[I]);
    }
  }

  /// std::swap(x, y) and std::exchange(x, y) assign; std::sort(outs.begin(), outs.end(),
  /// less) calls what it is given with elements.
  void giveToStd(const FunctionDecl *F, llvm::ArrayRef<const Expr *> Args) {
    const bool Assigns = nameOf(F) == "swap" || nameOf(F) == "exchange";
    for (const Expr *Arg : Args) {
      if (Assigns && Arg->isLValue() && mayHold(Arg->getType()))
        assign(Arg);
      for (const FunctionDecl *Called : calledBy(Arg))
        addAll(Called);
    }
  }
  void addAll(const FunctionDecl *F) {
    for (const ParmVarDecl *P : F->parameters())
      if (mayHold(P->getType()))
        add(P);
  }

  /// The program's functions that a call of `Arg` runs: a lambda's, a function's, those of
  /// an object with operator().
  std::vector<const FunctionDecl *> calledBy(const Expr *Arg) const {
    if (const FunctionDecl *Closure = closureOf(Arg))
      return {Closure};
    std::vector<const FunctionDecl *> All;
    const auto Add = [&](const FunctionDecl *F) {
      for (const FunctionDecl *Body : C.Index.ownBodiesOf(F))
        All.push_back(Body);
    };
    const auto *U = dyn_cast<UnaryOperator>(Arg->IgnoreParenImpCasts());
    const Expr *Named =
        U && U->getOpcode() == UO_AddrOf ? U->getSubExpr() : Arg;
    if (const auto *F = dyn_cast_or_null<FunctionDecl>(declNamedBy(Named)))
      Add(F);
    if (const CXXRecordDecl *D = recordOf(Arg->getType()); D && !isLibrary(D))
      for (const CXXMethodDecl *M : D->methods())
        if (M->getOverloadedOperator() == OO_Call)
          Add(M);
    return All;
  }

  /// F::apply(x, …): F::forward is given a context and what is passed,
  /// F::backward the context and gradients.
  void apply(const CXXRecordDecl *D, llvm::ArrayRef<const Expr *> Args) {
    if (llvm::none_of(Args, [&](const Expr *Arg) { return C.in(Arg); }))
      return;
    for (const CXXMethodDecl *M : D->methods()) {
      const FunctionDecl *Body = nullptr;
      if (!M->getIdentifier() || !M->hasBody(Body) || !Body->getNumParams())
        continue;
      if (M->getName() == "forward") {
        add(Body->getParamDecl(0));
        for (unsigned I = 1; I < Body->getNumParams() && I <= Args.size(); ++I)
          if (mayHold(Body->getParamDecl(I)->getType()) && C.in(Args[I - 1]))
            add(Body->getParamDecl(I));
      } else if (M->getName() == "backward") {
        for (const ParmVarDecl *P : Body->parameters())
          add(P);
      }
    }
  }

  Cut &C;
  const FunctionDecl *Function;
};

} // namespace accel::migrate

Cut::Cut(const ProgramIndex &Index, KindTy Kind) : Index(Index), Kind(Kind) {
  // Whoever calls it: containers of modules, TorchScript, the program.
  for (const FunctionDecl *F : Index.Functions)
    if (isPartOfModel(F) && nameOf(F) == "forward")
      for (const ParmVarDecl *P : F->parameters())
        if (mayHold(P->getType()))
          Supposed.insert(P);
  Values.insert(Supposed.begin(), Supposed.end());
  follow();
}

void Cut::add(const std::set<const Expr *> &Batches) {
  for (const Expr *E : Batches) {
    Shared.insert(plain(E));
    if (const ValueDecl *V = placeOf(E))
      SharedWhereRead.insert(V);
  }
  follow();
}

void Cut::follow() {
  for (bool Changed = true; Changed;) {
    Changed = false;
    for (const FunctionDecl *F : Index.Functions) {
      if (Index.loadsSamples(F))
        continue;
      CutWalk Walk(*this, F);
      for (const CXXCtorInitializer *Init : initsOf(F)) {
        Walk.initialiser(Init);
        Walk.TraverseStmt(Init->getInit());
      }
      Walk.TraverseStmt(F->getBody());
      Changed |= Walk.Changed;
    }
  }
}
