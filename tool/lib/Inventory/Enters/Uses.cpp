//===- Uses.cpp - What a function does with its tensors -------------------===//

#include "Uses.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

namespace {

class UseFinder : public AstVisitor {
public:
  std::map<const ValueDecl *, Uses> Of;

  bool VisitVarDecl(VarDecl *V) override {
    if (!V->getInit())
      return true;
    if (isTensor(V->getType()) || isNamedBatch(V->getType()))
      made(V, V->getInit());
    else if (isContainerOfTensors(V->getType()))
      list(V, V->getInit());
    else if (isScriptInputs(V->getType()))
      Of[V].Elements.push_back(V->getInit());
    return true;
  }
  /// for (auto &w : weights) w.requires_grad_(true);
  /// for (auto *w : {&a, &b}) w->requires_grad_(true);
  bool VisitCXXForRangeStmt(CXXForRangeStmt *S) override {
    QualType T = S->getLoopVariable()->getType().getNonReferenceType();
    if (T->isPointerType())
      T = T->getPointeeType();
    if (!isTensor(T) || !isMadeLeaf(S->getBody(), S->getLoopVariable()))
      return true;
    const Expr *Range = S->getRangeInit();
    if (const auto *List = dyn_cast<CXXStdInitializerListExpr>(plain(Range)))
      Range = plain(List->getSubExpr());
    if (const auto *List = dyn_cast<InitListExpr>(Range)) {
      for (const Expr *Each : List->inits()) {
        const auto *Address = dyn_cast<UnaryOperator>(plain(Each));
        makeLeaf(Address ? Address->getSubExpr() : Each);
      }
    } else {
      makeLeaf(Range);
    }
    return true;
  }
  bool VisitCXXOperatorCallExpr(CXXOperatorCallExpr *E) override {
    if (!E->isAssignmentOp())
      return true;
    if (const std::optional<Tied> All = tiedOf(E)) {
      for (unsigned I = 0; I < All->Variables.size(); ++I)
        if (All->Variables[I])
          Of[All->Variables[I]].Tied.push_back({All->Call, I});
      return true;
    }
    const Expr *To = plain(E->getArg(0));
    if (E->getOperator() == OO_Equal && isa<DeclRefExpr>(To)) {
      made(cast<DeclRefExpr>(To)->getDecl(), E->getArg(1));
    } else if (const ValueDecl *Root = rootOf(To)) {
      Of[Root].Written = true;
      Of[Root].Leaf |=
          (isa<MemberExpr>(To) || isContainerOfTensors(Root->getType())) &&
          asksForGradients(E->getArg(1));
    }
    return true;
  }
  void initialiser(const CXXCtorInitializer *Init) {
    if (Init->isAnyMemberInitializer() && Init->getInit())
      Of[Init->getAnyMember()].Leaf |= asksForGradients(plain(Init->getInit()));
  }
  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F)
      return true;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E))
      method(Member, F);
    // std::make_unique<torch::optim::Adam>(weights, options)
    if (stdNameOf(F).starts_with("make_") && optimizerOf(E->getType()))
      for (const Expr *Arg : E->arguments())
        trained(Arg);
    // next(x, y), where next is a lambda or a std::function.
    const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E);
    if (isTorch(F) || (Operator && Operator->getOperator() != OO_Call) ||
        modelCallOf(E))
      return true;
    const unsigned Skip = Operator ? 1 : 0;
    for (unsigned I = 0; I + Skip < E->getNumArgs() && I < F->getNumParams();
         ++I)
      if (const ValueDecl *Root = rootOf(E->getArg(I + Skip))) {
        // A lambda of the function is its own code, which keeps nothing.
        Of[Root].Handed |= !isInStd(F) && !Operator;
        if (const FunctionDecl *Body = nullptr; F->hasBody(Body))
          Of[Root].Given.push_back(Body->getParamDecl(I));
        const QualType T = F->getParamDecl(I)->getType();
        Of[Root].Written |= T->isReferenceType() && isTensor(T) &&
                            !T->getPointeeType().isConstQualified() &&
                            (!isInStd(F) || Operator);
      }
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    if (optimizerOf(E->getType()))
      for (const Expr *Arg : E->arguments())
        trained(Arg);
    if (!isTorch(E->getConstructor()) || !isTensor(E->getType()))
      for (const Expr *Arg : E->arguments())
        if (const ValueDecl *Root = rootOf(Arg))
          Of[Root].Handed = true;
    return true;
  }

private:
  /// Notes that what `E` is made from, first of all, is trained.
  void makeLeaf(const Expr *E) {
    if (const ValueDecl *Root = rootOf(E))
      Of[Root].Leaf = true;
  }

  void list(const ValueDecl *V, const Expr *E) {
    Of[V].Leaf |= asksForGradients(E);
    Of[V].Gradients |= areGradients(E);
    // auto fast = weights;
    if (const ValueDecl *Other = declNamedBy(E))
      Of[V].Leaf |= Of[Other].Leaf;
  }

  void made(const ValueDecl *V, const Expr *E) {
    // torch::Tensor x;
    if (const auto *Made = dyn_cast<CXXConstructExpr>(plain(E));
        Made && Made->getNumArgs() == 0)
      return;
    Of[V].Made.push_back(E);
    Of[V].Leaf |= asksForGradients(E);
    Of[V].Gradients |= areGradients(E);
  }
  /// torch::autograd::grad({loss}, weights), and one of them.
  static bool areGradients(const Expr *E) {
    E = plain(E);
    while (const auto *Element = operatorCall(E, OO_Subscript))
      E = plain(Element->getArg(0));
    return torchNameOf(E) == "grad" && !isa<CXXMemberCallExpr>(E);
  }

  /// What an optimizer is given: `weights`, `{w, b}`, but not what
  /// `net->parameters()` is called on.
  void trained(const Stmt *S) {
    if (!S || isa<CXXMemberCallExpr>(S))
      return;
    const auto *E = dyn_cast<Expr>(S);
    if (E && isa<DeclRefExpr, MemberExpr>(E) &&
        (isTensor(E->getType()) || isContainerOfTensors(E->getType())))
      return makeLeaf(E);
    for (const Stmt *Child : S->children())
      trained(Child);
  }

  void method(const CXXMemberCallExpr *E, const FunctionDecl *F) {
    const Expr *Object = E->getImplicitObjectArgument();
    if (isScriptInputs(Object->getType()) &&
        (nameOf(F) == "push_back" || nameOf(F) == "emplace_back")) {
      if (const ValueDecl *List = rootOf(Object))
        Of[List].Elements.insert(Of[List].Elements.end(), E->arg_begin(),
                                 E->arg_end());
      return;
    }
    // weights.insert("w", torch::randn({4}).requires_grad_());
    if (isContainerOfTensors(Object->getType()) && takesLeaf(E))
      makeLeaf(Object);
    if (!isTensor(Object->getType()) || !F->getIdentifier())
      return;
    const ValueDecl *Root = rootOf(Object);
    // x.clone().requires_grad_() is a tensor of its own.
    if (!Root || isMadeBy("clone", Object))
      return;
    const llvm::StringRef Name = F->getName();
    if (isMadeBy("detach", Object) && Name.contains("requires_grad"))
      return;
    if (Name == "requires_grad_" || Name == "set_requires_grad" ||
        Name == "retain_grad" || Name == "mutable_grad" || Name == "grad")
      Of[Root].Leaf = true;
    else if (namesInPlace(Name) || Name.contains("data_ptr") ||
             Name.contains("accessor"))
      Of[Root].Written = true;
    else if (Name == "item")
      Of[Root].ByRows |= isCountedThrough(Object);
  }

  /// Whether `E` calls the method on its way from a variable:
  /// `x.clone().to(device)`.
  static bool isMadeBy(llvm::StringRef Method, const Expr *E) {
    constexpr unsigned Most = 8;
    for (unsigned I = 0; E && I < Most; ++I, E = leadingOperand(E))
      if (const auto *Call = dyn_cast<CXXMemberCallExpr>(plain(E));
          Call && nameOf(Call->getMethodDecl()) == Method)
        return true;
    return false;
  }

  /// `x[i]`, `x[i][2]`, where the program counts i.
  static bool isCountedThrough(const Expr *E) {
    const auto *O = operatorCall(plain(E), OO_Subscript);
    if (!O)
      return false;
    const Expr *At = O->getArg(1)->IgnoreParenImpCasts();
    return (At->getType()->isIntegerType() && !isa<IntegerLiteral>(At)) ||
           isCountedThrough(O->getArg(0));
  }

  /// `torch::rand({3}, torch::requires_grad())`, `x.requires_grad_(true)`, and a
  /// function of the program that returns such a tensor.
  static bool asksForGradients(const Stmt *S, unsigned Depth = 0) {
    if (!S)
      return false;
    if (const auto *Call = dyn_cast<CallExpr>(S))
      if (const FunctionDecl *F = Call->getDirectCallee(), *Body = nullptr; F) {
        if (nameOf(F).contains("requires_grad"))
          return !isFalse(Call);
        if (Depth < 4 &&
            (isTensor(Call->getType()) ||
             isContainerOfTensors(Call->getType())) &&
            !isLibrary(F) && F->hasBody(Body) &&
            returnsLeaf(Body->getBody(), Depth + 1))
          return true;
      }
    return llvm::any_of(S->children(), [&](const Stmt *Child) {
      return asksForGradients(Child, Depth);
    });
  }
  /// options.requires_grad(false), which takes an optional
  static bool isFalse(const CallExpr *Call) {
    const Stmt *Arg = Call->getNumArgs() > 0 ? Call->getArg(Call->getNumArgs() - 1)
                                             : nullptr;
    while (Arg && !isa<CXXBoolLiteralExpr>(Arg)) {
      auto Children = Arg->children();
      Arg = Children.begin() != Children.end() ? *Children.begin() : nullptr;
    }
    return Arg && !cast<CXXBoolLiteralExpr>(Arg)->getValue();
  }
  static bool returnsLeaf(const Stmt *S, unsigned Depth) {
    if (!S || isa<LambdaExpr>(S))
      return false;
    if (const auto *Block = dyn_cast<CompoundStmt>(S))
      if (const auto *Return = dyn_cast_or_null<ReturnStmt>(Block->body_back()))
        if (const auto *Ref = dyn_cast_or_null<DeclRefExpr>(
                plain(Return->getRetValue())))
          return isMadeLeaf(Block, Ref->getDecl());
    if (const auto *Return = dyn_cast<ReturnStmt>(S))
      return asksForGradients(Return->getRetValue(), Depth);
    return llvm::any_of(S->children(), [&](const Stmt *Child) {
      return returnsLeaf(Child, Depth);
    });
  }
  /// Whether a container is given a tensor that is trained.
  static bool takesLeaf(const CXXMemberCallExpr *E) {
    return llvm::any_of(E->arguments(),
                        [](const Expr *Arg) { return asksForGradients(Arg); });
  }
  /// w.set_requires_grad(true); all.insert("w", w.requires_grad_());
  static bool isMadeLeaf(const Stmt *S, const ValueDecl *V) {
    return existsIn(S, [&](const Stmt *Part) {
      const auto *Call = dyn_cast<CXXMemberCallExpr>(Part);
      const llvm::StringRef Name = nameOf(calleeOf(Call));
      return !Name.empty() && rootOf(Call->getImplicitObjectArgument()) == V &&
             (Name.contains("requires_grad") ||
              (isContainerOfTensors(V->getType()) && takesLeaf(Call)));
    });
  }
};

} // namespace

std::map<const ValueDecl *, Uses>
accel::migrate::usesIn(const FunctionDecl *F) {
  UseFinder Finder;
  Finder.TraverseStmt(F->getBody());
  for (const CXXCtorInitializer *Init : initsOf(F))
    Finder.initialiser(Init);
  return std::move(Finder.Of);
}
