//===- Evaluated.cpp - What enters an evaluation --------------------------===//

#include "Evaluated.h"
#include "Layout.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

static bool switchesGradientsOff(const Stmt *S) {
  const VarDecl *V = declaredBy(S);
  const CXXRecordDecl *R = V ? recordOf(V->getType()) : nullptr;
  return nameOf(R) == "NoGradGuard" || nameOf(R) == "InferenceMode";
}

bool accel::migrate::isInEvaluation(llvm::ArrayRef<const Stmt *> Path,
                                    const ProgramIndex &Index, bool InStep) {
  for (size_t I = 0; I + 1 < Path.size(); ++I) {
    if (auto It = Index.Loops.find(Path[I]); It != Index.Loops.end() &&
                                             !It->second.Training &&
                                             !It->second.AddsUp)
      return true;
    const auto *Block = dyn_cast<CompoundStmt>(Path[I]);
    if (!Block || (InStep && I > 0 && isa<CompoundStmt>(Path[I - 1])))
      continue;
    for (const Stmt *S : Block->body()) {
      if (S == Path[I + 1])
        break;
      if (switchesGradientsOff(S))
        return true;
    }
  }
  return false;
}

namespace {
/// The models that a function calls without training them, and what it does with
/// what they give.
class EvaluationWalk : public AstAncestorVisitor {
public:
  EvaluationWalk(const ProgramIndex &Index, const Layout &Layouts,
                 const FunctionDecl *F)
      : Index(Index), Layouts(Layouts), F(F), Trains(Index.trainsDirectly(F)) {}

  struct Input {
    const Expr *E;
    bool StepsFirst;
  };
  std::vector<Input> Inputs;
  bool Measures = false;
  bool LooksAtElements = false;

  bool VisitCallExpr(CallExpr *E) override {
    // What stands between trainings is no evaluation by itself.
    const bool InStep = Index.isInStep(E->getExprLoc(), F);
    if ((Trains || InStep) && !isInEvaluation(Path, Index, InStep))
      return true;
    look(E);
    // loss_of(output, target), a function of the program.
    if (const FunctionDecl *Callee = E->getDirectCallee();
        Callee && !isLibrary(Callee) && llvm::any_of(E->arguments(), isOutput))
      for (const FunctionDecl *Body : Index.ownBodiesOf(Callee))
        if (!Index.trainsDirectly(Body))
          eachIn<CallExpr>(Body->getBody(),
                           [&](const CallExpr *Inner) { look(Inner); });
    const std::optional<ModelCall> Call = modelCallOf(E);
    if (!Call)
      return true;
    if (isLoss(*Call)) {
      Measures = true;
      return true;
    }
    for (unsigned I = 0; I < Call->Inputs.size(); ++I)
      if (!takesVariable(*Call, I))
        Inputs.push_back({Call->Inputs[I], Layouts.hasStepsFirst(*Call, I, F)});
    return true;
  }

private:
  /// What a model gives, or a variable that has it.
  static bool isOutput(const Expr *E) {
    const ValueDecl *D = rootOf(E);
    if (const auto *B = dyn_cast_or_null<BindingDecl>(D))
      D = cast<ValueDecl>(B->getDecomposedDecl());
    const auto *V = dyn_cast_or_null<VarDecl>(D);
    return callsModel(E) || (V && V->getInit() && callsModel(V->getInit()));
  }
  /// `losses` of `auto losses = torch::zeros({10}); losses[k] = loss.item<float>();`
  bool isOwnBuffer(const Expr *E) const {
    const VarDecl *V = variableOf(E);
    return V && V->isLocalVarDecl() && V->getInit() &&
           sizesOfBuffer(V->getInit()) && isNoBatch(V->getInit(), Index.Context);
  }
  /// What a call does with tensors.
  void look(const CallExpr *E) {
    const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E);
    if (Operator && isTensor(Operator->getArg(0)->getType())) {
      LooksAtElements |= Operator->getOperator() == OO_Subscript &&
                         !isOwnBuffer(Operator->getArg(0));
      Measures |= Operator->getOperator() == OO_EqualEqual;
    }
    static const llvm::StringSet<> Measuring = {"cross_entropy", "eq", "mean",
                                                "kl_div"};
    static const llvm::StringSet<> Elementwise = {
        "data_ptr", "accessor", "multinomial", "select", "unbind"};
    const llvm::StringRef Name = torchNameOf(E);
    Measures |= Name.ends_with("_loss") || Measuring.count(Name);
    LooksAtElements |= Elementwise.count(Name) != 0;
  }

  const ProgramIndex &Index;
  const Layout &Layouts;
  const FunctionDecl *F;
  const bool Trains;
};
} // namespace

std::vector<Batch> accel::migrate::findEvaluated(const ProgramIndex &Index,
                                                 const Cut &Cuts,
                                                 llvm::ArrayRef<Batch> Shared,
                                                 SourceText &Text) {
  std::vector<Batch> Found;
  const Layout Layouts(Index);
  std::set<std::pair<std::string, unsigned>> Places;
  for (const FunctionDecl *F : Index.Functions) {
    if (isPartOfModel(F) || Index.loadsSamples(F) || Index.BeforeMain.count(F) ||
        Index.OfMainProcess.count(F->getCanonicalDecl()))
      continue;
    EvaluationWalk Walk(Index, Layouts, F);
    Walk.TraverseStmt(F->getBody());
    if (!Walk.Measures || Walk.LooksAtElements)
      continue;
    for (const auto &[Input, StepsFirst] : Walk.Inputs) {
      const Expr *E = plain(Input);
      if (!isTensor(E->getType()) || Cuts.in(E) || callsModel(E) ||
          isNoBatch(E, Index.Context) || llvm::any_of(Shared, [&](const Batch &B) {
            return isWithin(E->getExprLoc(), B.E, Text.SM);
          }))
        continue;
      const std::optional<TextRange> R = Text.range(E->getSourceRange());
      if (R && Places.insert({R->File, R->Offset}).second)
        Found.push_back({F, E, /*ReadBy=*/nullptr, /*ReadIn=*/nullptr,
                         /*Points=*/false, StepsFirst});
    }
  }
  return Found;
}
