//===- StrayOptimizers.cpp - Optimizers that are no variable --------------===//
//
// What they train is prepared where that is seen, so that gradients are brought
// together at once and not one by one.
//
//===----------------------------------------------------------------------===//

#include "Learns.h"

#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

namespace {
/// An optimizer as it is written in an expression.
struct WrittenOptimizer {
  const Expr *E; ///< With the type: that of `Adam(parameters)` is a cast's.
  const Stmt *Around; ///< What uses it; may be null.
};
} // namespace

static WrittenOptimizer writtenAs(const Expr *E,
                                  llvm::ArrayRef<const Stmt *> Path) {
  WrittenOptimizer Result = {E, nullptr};
  for (const Stmt *S : llvm::reverse(Path))
    if (const auto *Cast = dyn_cast<CXXFunctionalCastExpr>(S)) {
      Result.E = plain(Cast->getSubExpr()) == E ? Cast : E;
    } else if (S != E && !isa<CXXBindTemporaryExpr, ImplicitCastExpr>(S)) {
      Result.Around = S;
      break;
    }
  return Result;
}

/// What is returned by value becomes what the caller holds, and is left as it is: a
/// lambda may be given to something that takes a function of this type.
static bool isReturnedByValue(const WrittenOptimizer &Optimizer) {
  return isOptimizerByValue(Optimizer.E->getType()) &&
         isa_and_nonnull<ReturnStmt, ExprWithCleanups>(Optimizer.Around);
}

/// Whether a std::any holds it, which is asked for it by a type that is named
/// elsewhere.
static bool isHeldByAny(llvm::ArrayRef<const Stmt *> Path) {
  return llvm::any_of(Path, [](const Stmt *S) {
    const auto *Made = dyn_cast<CXXConstructExpr>(S);
    const CXXRecordDecl *D = Made ? recordOf(Made->getType()) : nullptr;
    return D && isInStd(D) && nameOf(D) == "any";
  });
}

/// An optimizer that is made elsewhere than in a variable's declaration.
void OptimizerFacts::strayOptimizer(const Expr *E) {
  const auto *Copied = dyn_cast<CXXConstructExpr>(E);
  if (isConsumed() ||
      (Copied && Copied->getConstructor()->isCopyOrMoveConstructor()))
    return;
  // A base class that is constructed, or a copy of itself.
  if (const auto *M = dyn_cast<CXXMethodDecl>(Function);
      M && isOrDerives(M->getParent(), "torch::optim::Optimizer"))
    return;
  const WrittenOptimizer Written = writtenAs(E, Path);
  const Making Made = makingOf(nullptr, Written.E);
  Consumed.insert(E);
  const bool Prepared = prepareModelsOf(Made.First);
  if (Made.Understood && canTakePart(Made.Class) && !isHeldByAny(Path)) {
    if (!isReturnedByValue(Written))
      Program.Optimizers.push_back({here(), Made.TypeNames});
    if (!Prepared)
      say("ACL0182", E->getExprLoc(),
          "the optimizer that is made here has no name, and no model of its is "
          "seen that could be prepared here",
          "Nothing has to be done for the results. Where the model is not "
          "prepared elsewhere, accelerator.prepare(model) has its gradients "
          "added up at once.");
    return;
  }
  say("ACL0182", E->getExprLoc(),
      llvm::Twine("an optimizer is made here that is not a variable of the "
                  "function, and stays LibTorch's")
          .concat(Prepared ? "; its model is prepared" : "")
          .str(),
      PrepareByHand);
}

/// Whether an expression only looks at what variables hold: `nets[i]`,
/// `agent.model`, `nets.back()`.
static bool onlyLooks(const Expr *E) {
  E = plain(E);
  if (isa<DeclRefExpr, CXXThisExpr, IntegerLiteral>(E))
    return true;
  if (const auto *M = dyn_cast<MemberExpr>(E))
    return isa<FieldDecl>(M->getMemberDecl()) && onlyLooks(M->getBase());
  if (const auto *U = dyn_cast<UnaryOperator>(E))
    return U->getOpcode() == UO_Deref && onlyLooks(U->getSubExpr());
  if (const auto *A = dyn_cast<ArraySubscriptExpr>(E))
    return onlyLooks(A->getBase()) && onlyLooks(A->getIdx());
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E))
    return (O->getOperator() == OO_Subscript || O->getOperator() == OO_Star ||
            O->getOperator() == OO_Arrow) &&
           llvm::all_of(O->arguments(), onlyLooks);
  if (const auto *Call = dyn_cast<CXXMemberCallExpr>(E)) {
    static const llvm::StringSet<> Names = {"back", "front", "at", "get"};
    const CXXMethodDecl *M = Call->getMethodDecl();
    return Names.count(nameOf(M)) && isInStd(M) &&
           onlyLooks(Call->getImplicitObjectArgument()) &&
           llvm::all_of(Call->arguments(), onlyLooks);
  }
  return false;
}

/// How the model of `nets[i]->parameters()` is spelled.
std::optional<std::string> OptimizerFacts::modelIn(const Expr *Parameters) {
  const auto *Call = dyn_cast<CXXMemberCallExpr>(bare(Parameters));
  const CXXMethodDecl *M = Call ? Call->getMethodDecl() : nullptr;
  if (nameOf(M) != "parameters" || Initialiser)
    return std::nullopt;
  const Expr *Object = Call->getImplicitObjectArgument();
  // What the arrow of a holder or of a pointer leads to.
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(plain(Object));
      O && O->getOperator() == OO_Arrow)
    Object = plain(O->getArg(0)); // shared_ptr's arrow is its base's.
  if (!moduleOf(Object->getType()) || isa<CXXThisExpr>(plain(Object)) ||
      !onlyLooks(Object))
    return std::nullopt;
  const CXXRecordDecl *D = recordOf(Object->getType());
  const bool Pointer = Object->getType()->isPointerType() ||
                       (nameOf(D) == "unique_ptr" && isInStd(D));
  return (Pointer ? "*" : "") + Text.text(Object->getSourceRange());
}

/// `Schedule schedule(std::make_unique<torch::optim::Adam>(net->parameters()));`: its
/// model can be prepared behind that; before it, where the statement returns or trains.
bool OptimizerFacts::prepareModelsOf(const Expr *Parameters) {
  if (!Parameters || isBeforeMain())
    return false;
  const Stmt *Child = nullptr;
  if (!setUpBlock(&Child) ||
      (Child && !isa<DeclStmt, Expr, IfStmt, ReturnStmt>(Child)))
    return false;
  const bool IsBehind =
      !Child || !(isa<ReturnStmt>(Child) || Index.holdsBatches(Child));
  OptimizerFact Fact;
  const std::vector<const ValueDecl *> Models = modelsOf(Parameters, Fact);
  if ((Models.empty() && Fact.Models.empty()) ||
      !setUp(Fact, nullptr, Models))
    return false;
  if (!IsBehind) {
    const std::optional<LinePoint> Before = Text.before(Child);
    if (!Before)
      return false;
    Fact.SetUp = *Before;
  }
  Program.Optimizers.push_back(std::move(Fact));
  return true;
}

/// Whether the optimizer is made in a statement of the block: as a variable of it, or
/// given to one that it knows.
static bool isMadeIn(const CompoundStmt *Block, const ValueDecl *Optimizer) {
  return llvm::any_of(Block->body(), [&](const Stmt *S) {
    if (const auto *D = dyn_cast<DeclStmt>(S))
      return llvm::is_contained(D->decls(), Optimizer);
    const auto *E = dyn_cast<Expr>(S);
    const auto *O = E ? dyn_cast<CXXOperatorCallExpr>(plain(E)) : nullptr;
    return O && O->getOperator() == OO_Equal && placeOf(O->getArg(0)) == Optimizer;
  });
}

/// Whether the constructor's initialisers make it.
static bool isMadeBefore(const FunctionDecl *F, const ValueDecl *Optimizer) {
  const auto *Ctor = dyn_cast<CXXConstructorDecl>(F);
  return Ctor && llvm::any_of(Ctor->inits(), [&](const CXXCtorInitializer *Init) {
           return Init->isWritten() && Init->getAnyMember() == Optimizer;
         });
}

/// Parameters that come later must come before prepare does.
void OptimizerFacts::addedGroup(const CallExpr *E) {
  const auto *Call = dyn_cast<CXXMemberCallExpr>(E);
  const ValueDecl *Optimizer =
      Call ? placeOf(Call->getImplicitObjectArgument()) : nullptr;
  const Stmt *Child = nullptr;
  const CompoundStmt *Block = block(&Child);
  const bool Here =
      Optimizer && Block && Child && isa<Expr>(Child) &&
      plain(cast<Expr>(Child)) == E &&
      (isMadeIn(Block, Optimizer) ||
       (Block == Function->getBody() && isMadeBefore(Function, Optimizer)));
  if (!Here)
    say("ACL0182", E->getExprLoc(),
           "parameters are added to an optimizer at another place than the one "
           "that makes it: their gradients are summed one by one",
           "Nothing has to be done for the results. To have them summed with "
           "the others, call accelerator.prepare(optimizer) behind this.");
}
