//===- StepBodies.cpp - What is one training step -------------------------===//

#include "StepBodies.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// Functions of LibTorch's by which parameters can be written without an optimizer, or
/// that give what can.
static bool writesByHand(const FunctionDecl *F) {
  static const llvm::StringSet<> Names = {
      "data",        "set_data",      "tensor_data", "variable_data",
      "detach",      "load",          "apply",       "vector_to_parameters",
      "set_enabled", "mutable_grad"};
  const llvm::StringRef Name = nameOf(F);
  return Names.count(Name) || givesMemory(F) || Name.ends_with("_out") ||
         (namesInPlace(Name) && !isa<CXXMethodDecl>(F)); // torch::nn::init
}

class StepBodies::RunFinder : public AstPathVisitor {
public:
  RunFinder(const ProgramIndex &Index, const std::set<const Stmt *> &Apart)
      : Index(Index), Apart(Apart) {}

  Run Found;

  bool TraverseStmt(Stmt *S) override {
    return Apart.count(S) || AstPathVisitor::TraverseStmt(S);
  }

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E);
    if (!F || (isInStd(F) && Operator && Operator->getOperator() == OO_Call)) {
      Found.MayWrite = true;
      return true;
    }
    if (isTorch(F))
      Found.MayWrite |= writesByHand(F);
    else if (isInStd(F))
      Found.MayWrite |= llvm::any_of(E->arguments(), [](const Expr *Arg) {
        return Arg->getType()->isFunctionPointerType();
      });
    else
      Found.MayWrite |= Index.bodiesOf(F).empty();
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E)) {
      const Expr *Object = Member->getImplicitObjectArgument();
      Found.HasBackward |=
          nameOf(F) == "backward" && isTensor(Object->getType());
      if (nameOf(F) == "step" && optimizerOf(Object->getType())) {
        Found.Updates = true;
        Found.Stepped.insert(accel::migrate::placeOf(Object));
      }
    }
    if (!isLibrary(F))
      for (const FunctionDecl *Body : Index.bodiesOf(F))
        enter(Body);
    return true;
  }
  bool VisitDeclRefExpr(DeclRefExpr *E) override {
    if (const LambdaExpr *L = lambdaIn(E->getDecl()))
      enter(operatorOf(L));
    return true;
  }
  bool VisitCXXConstructExpr(CXXConstructExpr *E) override {
    // A guard of the program's own, say.
    const CXXConstructorDecl *C = E->getConstructor();
    Found.MayWrite |= !isLibrary(C) && !C->isCopyOrMoveConstructor();
    return true;
  }
  /// A leaf is written in place where gradients are switched off, and nowhere else.
  bool VisitVarDecl(VarDecl *V) override {
    static const llvm::StringSet<> Guards = {"NoGradGuard", "InferenceMode",
                                             "AutoGradMode"};
    const CXXRecordDecl *D = recordOf(V->getType());
    Found.MayWrite |= Guards.count(nameOf(D));
    return true;
  }

private:
  void enter(const FunctionDecl *F) {
    if (Found.Functions.insert(F).second && F->hasBody())
      TraverseStmt(F->getBody());
  }
  const ProgramIndex &Index;
  const std::set<const Stmt *> &Apart;
};

namespace {
/// The calls of the program's own functions, and whether all of one stand where the
/// statements do not always come to them.
class CallFinder : public AstAncestorVisitor {
public:
  explicit CallFinder(const ProgramIndex &Index) : Index(Index) {}

  /// By body.
  std::map<const FunctionDecl *, bool> IsConditional;

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    if (!F || isLibrary(F))
      return true;
    const auto Bodies = Index.ownBodiesOf(F);
    if (Bodies.size() != 1)
      return true;
    const bool Here = llvm::any_of(Path, decidesAboutParts);
    const auto [It, New] = IsConditional.try_emplace(Bodies.front(), Here);
    It->second &= Here;
    return true;
  }

private:
  const ProgramIndex &Index;
};

/// The blocks behind conditions in which a model is called, in no loop or closure.
class ConditionalBlocks : public AstPathVisitor {
public:
  std::vector<const CompoundStmt *> Found;

  bool TraverseStmt(Stmt *S) override {
    if (S && (isLoop(S) || isa<LambdaExpr>(S)))
      return true;
    return AstPathVisitor::TraverseStmt(S);
  }
  bool VisitIfStmt(IfStmt *S) override {
    for (const Stmt *Branch : {S->getThen(), S->getElse()})
      if (const auto *Block = dyn_cast_or_null<CompoundStmt>(Branch);
          Block && existsIn(Block, isModelCall)) // In a lambda, too.
        Found.push_back(Block);
    return true;
  }
};

/// The tensors that are told to have gradients, those that models are given, and those
/// whose gradient is read.
class InputFinder : public AstVisitor {
public:
  std::set<const ValueDecl *> Leaves, Inputs, Graded;

  bool VisitCallExpr(CallExpr *E) override {
    if (const std::optional<ModelCall> Call = modelCallOf(E))
      for (const Expr *Input : Call->Inputs)
        existsIn(Input, [&](const Stmt *Part) {
          if (const auto *Ref = dyn_cast<DeclRefExpr>(Part))
            Inputs.insert(Ref->getDecl());
          return false;
        });
    const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
    const FunctionDecl *F = calleeOf(Member);
    const ValueDecl *Root =
        isTorch(F) ? rootOf(Member->getImplicitObjectArgument()) : nullptr;
    if (Root && nameOf(F) == "grad")
      Graded.insert(Root);
    else if (Root && nameOf(F).contains("requires_grad"))
      Leaves.insert(Root);
    return true;
  }
};
} // namespace

StepBodies::StepBodies(const ProgramIndex &Index)
    : Index(Index), SM(Index.Context.getSourceManager()) {
  for (const auto &[Loop, Facts] : Index.Loops)
    if (Facts.Training)
      Runs[Loop] = runOf(bodyOf(Loop));
  findLoopsAround();
}

/// But for the statements of `Apart`, with all that they run.
StepBodies::Run StepBodies::runOf(const Stmt *S,
                                  const std::set<const Stmt *> &Apart) const {
  RunFinder Finder(Index, Apart);
  Finder.TraverseStmt(const_cast<Stmt *>(S));
  return std::move(Finder.Found);
}

/// Whether the body of the outer loop runs the inner one.
bool StepBodies::runs(const Run &Outer, const Stmt *OuterLoop,
                      const BatchLoop &Inner) const {
  return OuterLoop != Inner.Loop &&
         (Outer.Functions.count(Inner.In) ||
          isWithin(Inner.Loop->getBeginLoc(), bodyOf(OuterLoop), SM));
}

bool StepBodies::updatesNothing(const BatchLoop &Loop) const {
  const Run &Of = Runs.at(Loop.Loop);
  return !Of.Updates && !Of.MayWrite;
}

bool StepBodies::isPartOfStep(const BatchLoop &Loop) const {
  if (Runs.at(Loop.Loop).Updates)
    return false;
  return llvm::any_of(Runs, [&](const auto &Other) {
    return Other.second.Updates && runs(Other.second, Other.first, Loop);
  });
}

void StepBodies::findLoopsAround() {
  std::vector<BatchLoop> WithoutStep;
  std::set<const Stmt *> Updating;
  for (const auto &[Loop, Of] : Runs)
    if (Of.Updates)
      Updating.insert(Loop);
    else if (!isPartOfStep(Index.Loops.at(Loop)))
      WithoutStep.push_back(Index.Loops.at(Loop));
  if (WithoutStep.empty())
    return;
  // An epoch, too, updates: by the loops that are steps already. They do not count.
  std::vector<BatchLoop> Loops;
  for (const FunctionDecl *F : Index.Functions)
    existsIn(
        F->getBody(),
        [&](const Stmt *S) {
          if (isLoop(S))
            Loops.push_back({S, F, F});
          return false;
        },
        LambdaBodies::Skip); // Those in closures are the closures'.
  std::vector<std::pair<BatchLoop, Run>> Around;
  for (const BatchLoop &Loop : Loops) {
    if (Runs.count(Loop.Loop))
      continue;
    Run Found = runOf(bodyOf(Loop.Loop), Updating);
    if (Found.Updates && llvm::any_of(WithoutStep, [&](const BatchLoop &Inner) {
          return runs(Found, Loop.Loop, Inner);
        }))
      Around.emplace_back(Loop, std::move(Found));
  }
  for (const auto &Outer : Around) {
    const bool IsInnermost = llvm::none_of(Around, [&](const auto &Inner) {
      return runs(Outer.second, Outer.first.Loop, Inner.first);
    });
    if (!IsInnermost)
      continue;
    LoopsAround.push_back(Outer.first);
    Runs[Outer.first.Loop] = Outer.second;
  }
}

/// The last of the statements with which a function begins that leave it before it has
/// done anything else: `if (size() < batch) return 0;`.
static const Stmt *lastGuard(const FunctionDecl *F) {
  const Stmt *Last = nullptr;
  const CompoundStmt *Body = blockOf(F->getBody());
  if (!Body)
    return nullptr;
  const auto Leaves = [](const Stmt *S) {
    if (const auto *Block = dyn_cast_or_null<CompoundStmt>(S))
      S = Block->size() == 1 ? Block->body_front() : nullptr;
    return S && isa<ReturnStmt>(S);
  };
  for (const Stmt *S : Body->body()) {
    const auto *If = dyn_cast<IfStmt>(S);
    if (If && !If->getElse() && Leaves(If->getThen()))
      Last = S;
    else if (!isa<DeclStmt>(S) || Last)
      break;
  }
  return Last;
}

/// Whether `Body` runs one whole step, which `Step` in it does.
bool StepBodies::isOnlyStepOf(const Stmt *Body, const Stmt *Step) const {
  const Run Inner = runOf(Step), Rest = runOf(Body, {Step});
  return Inner.Updates && Inner.HasBackward && !Rest.Updates &&
         !Rest.HasBackward && llvm::none_of(Index.Loops, [&](const auto &Loop) {
           return Loop.second.Training &&
                  (Inner.Functions.count(Loop.second.In) ||
                   isWithin(Loop.first->getBeginLoc(), Step, SM));
         });
}

std::optional<StepBodies::StepPlace>
StepBodies::placeIn(const Stmt *Body, unsigned Depth) const {
  constexpr unsigned Most = 4;
  if (Depth >= Most)
    return std::nullopt;
  ConditionalBlocks Blocks;
  Blocks.TraverseStmt(const_cast<Stmt *>(Body));
  for (const CompoundStmt *Block : Blocks.Found)
    if (isOnlyStepOf(Body, Block)) {
      const std::optional<StepPlace> Inner = placeIn(Block, Depth + 1);
      return Inner ? Inner : std::optional(StepPlace{nullptr, Block, nullptr});
    }
  CallFinder Calls(Index);
  Calls.TraverseStmt(const_cast<Stmt *>(Body));
  for (const auto &[F, IsConditional] : Calls.IsConditional) {
    if (!blockOf(F->getBody()) || !isOnlyStepOf(Body, F->getBody()))
      continue;
    if (std::optional<StepPlace> Inner = placeIn(F->getBody(), Depth + 1)) {
      if (!Inner->In)
        Inner->In = F;
      return Inner;
    }
    const Stmt *Guard = lastGuard(F);
    return IsConditional || Guard
               ? std::optional(StepPlace{F, blockOf(F->getBody()), Guard})
               : std::nullopt;
  }
  return std::nullopt;
}

std::optional<StepBodies::StepPlace>
StepBodies::placeOf(const BatchLoop &Loop) const {
  const std::optional<StepPlace> Found = placeIn(bodyOf(Loop.Loop));
  if (!Found || !Found->In)
    return Found;
  // Another loop whose passes are steps would count them twice.
  const bool IsPartOfOther = llvm::any_of(Runs, [&](const auto &Other) {
    if (!Other.second.Functions.count(Found->In))
      return false;
    const std::optional<StepPlace> ItsOwn = placeIn(bodyOf(Other.first));
    return !ItsOwn || ItsOwn->Body != Found->Body;
  });
  return IsPartOfOther ? std::nullopt : Found;
}

bool StepBodies::isForInput(const BackwardCall &B) const {
  if (!B.Step || !isPartOfStep(Index.Loops.at(B.Step)))
    return false;
  InputFinder Function, Step;
  Function.TraverseStmt(B.In->getBody());
  Step.TraverseStmt(const_cast<Stmt *>(bodyOf(B.Step)));
  return llvm::any_of(Step.Inputs, [&](const ValueDecl *V) {
    return Step.Graded.count(V) && Function.Leaves.count(V);
  });
}

std::vector<StepBodies::StepPlace> StepBodies::stepsGivenAway() const {
  std::vector<StepPlace> Steps;
  for (const FunctionDecl *F : Index.GivenAway) {
    const Run Of = runOf(F->getBody());
    // With an optimizer of its own it is a training, of one step.
    const bool IsTraining =
        !Of.Stepped.empty() &&
        llvm::all_of(Of.Stepped, [&](const ValueDecl *V) {
          return V && V->getDeclContext() == F && !isa<ParmVarDecl>(V);
        });
    if ((Of.Updates || Of.MayWrite) && !IsTraining)
      Steps.push_back({F, F->getBody(), lastGuard(F)});
  }
  return Steps;
}

/// The closures that `S` calls and was given: those that are parameters of its
/// function.
static std::vector<const CXXMethodDecl *> givenClosures(const Stmt *S) {
  std::vector<const CXXMethodDecl *> Given;
  eachIn<CXXOperatorCallExpr>(S, [&](const CXXOperatorCallExpr *E) {
    const auto *M = dyn_cast_or_null<CXXMethodDecl>(E->getDirectCallee());
    const auto *Ref = dyn_cast<DeclRefExpr>(plain(E->getArg(0)));
    if (E->getOperator() == OO_Call && M && M->getParent()->isLambda() &&
        Ref && isa<ParmVarDecl>(Ref->getDecl()) && M->hasBody() &&
        !llvm::is_contained(Given, M))
      Given.push_back(M);
  });
  return Given;
}

std::vector<const CXXMethodDecl *>
StepBodies::closuresOf(const BatchLoop &Loop) const {
  std::vector<const CXXMethodDecl *> Steps;
  for (const CXXMethodDecl *M : givenClosures(bodyOf(Loop.Loop))) {
    const Run Of = runOf(M->getBody());
    if (Of.Updates && Of.HasBackward)
      Steps.push_back(M);
    else if (Of.HasBackward)
      return {};
  }
  return Steps;
}
