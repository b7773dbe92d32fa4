//===- Batches.cpp - What enters without a loader -------------------------===//

#include "Batches.h"
#include "BatchOrigins.h"
#include "Evaluated.h"
#include "Fields.h"
#include "Layout.h"
#include "Selected.h"
#include "Sizes.h"

#include "Code/AstVisitor.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"

using namespace accel::migrate;
using namespace clang;

/// Whether it is seen that a tensor has two dimensions: x.t(), x.slice(1, i, j),
/// x.index({Slice(), rows}), x.view({4, -1}), or a variable that is made so.
static bool isMatrix(const Expr *E, const ASTContext &Context) {
  if (const VarDecl *V = variableOf(E); V && V->getInit())
    E = V->getInit();
  static const llvm::StringSet<> OfTwo = {"t", "transpose", "T", "mm"};
  static const llvm::StringSet<> Cuts = {"slice", "narrow", "index_select"};
  static const llvm::StringSet<> Lists = {"index", "view", "reshape",
                                          "rand",  "randn", "from_blob"};
  const auto *Call = dyn_cast<CallExpr>(plain(E));
  const llvm::StringRef Name = torchNameOf(Call);
  if (Cuts.count(Name))
    return isa<CXXMemberCallExpr>(Call) && Call->getNumArgs() > 0 &&
           constantOf(Call->getArg(0), Context) == 1;
  return OfTwo.count(Name) ||
         (Lists.count(Name) &&
          llvm::any_of(Call->arguments(), [](const Expr *Arg) {
            const InitListExpr *List = listIn(Arg);
            return List && List->getNumInits() == 2;
          }));
}

namespace {

/// The program, and what is asked of it.
struct Question {
  const ProgramIndex &Index;
  const Cut &Loaded;
  const bool OnlyWhole;
  const Layout Layouts = Layout(Index);
};

/// Whether a function can be given a batch that is shared out.
bool takesBatch(const FunctionDecl *F) {
  return llvm::any_of(F->parameters(), [](const ParmVarDecl *P) {
    const QualType T = P->getType().getNonReferenceType();
    return isBatch(T) || isNamedBatch(T) || isContainerOfTensors(T) ||
           isScriptInputs(T);
  });
}

/// Whether `F` is a model's method that steps call, and that no batch can be given to
/// which is shared out: it takes a class that only it can read, or makes its batch.
bool readsForItself(const FunctionDecl *F, const BatchOrigins &Origins) {
  return isPartOfModel(F) && !takesBatch(F) && Origins.isCalledBySteps(F);
}

/// Goes through what training steps run.
class StepWalk : public AstAncestorVisitor {
public:
  StepWalk(const Question &Asked, BatchOrigins &Origins, const FunctionDecl *In,
           bool Models)
      : Asked(Asked), Origins(Origins), In(In), Models(Models),
        IsModel(readsForItself(In, Origins)) {}

  bool AnyModel = false;

  bool VisitCallExpr(CallExpr *E) override {
    if (!(IsModel || Asked.Index.isInStep(E->getExprLoc(), In)) ||
        isInEvaluation(Path, Asked.Index, /*InStep=*/true))
      return true;
    if (const std::optional<ModelCall> Call = modelCallOf(E)) {
      AnyModel = true;
      // A loss takes its rows of what meets a model's output.
      if (Models && !isLoss(*Call) && !isDone(Call->Inputs))
        for (unsigned I = 0; I < Call->Inputs.size(); ++I)
          if (!IsModel || !isCounted(Call->Inputs[I]))
            Origins.read(Call->Inputs[I], E, In, takesVariable(*Call, I),
                         Asked.Layouts.hasStepsFirst(*Call, I, In));
      return true;
    }
    if (!Models)
      operands(E);
    return true;
  }

private:
  bool isDone(llvm::ArrayRef<const Expr *> Inputs) const {
    return Asked.OnlyWhole && llvm::any_of(Inputs, [&](const Expr *Input) {
             return Asked.Loaded.in(Input);
           });
  }
  /// torch::arange(n): within a model, positions.
  static bool isCounted(const Expr *E) {
    return anyOperand(E, [](const Expr *Operand) {
      return torchNameOf(Operand) == "arange";
    });
  }

  static bool isSpread(const Expr *E) { return torchNameOf(E) == "unsqueeze"; }

  /// Where the program trains tensors of its own: `x.mm(weight)`, with a weight
  /// that requires gradients, reads x.
  void operands(const CallExpr *E) {
    const FunctionDecl *Callee = E->getDirectCallee();
    if (!Callee || !isTorch(Callee))
      return;
    // torch::lstm(x, {h, c}, weights, …)
    static const llvm::StringSet<> Recurrent = {"lstm", "gru", "rnn_tanh",
                                                "rnn_relu"};
    if (Recurrent.count(nameOf(Callee)) && E->getNumArgs() > 1 &&
        isTensor(E->getArg(0)->getType())) {
      const Expr *Input = E->getArg(0);
      const auto Reads = [&](const Expr *Arg) {
        return Origins.readsParameter(Arg, In);
      };
      if (!Reads(Input) && !isDone({Input}) &&
          std::any_of(E->arg_begin() + 1, E->arg_end(), Reads))
        Origins.read(Input, E, In);
      return;
    }
    if (!isTensor(E->getType()))
      return;
    static const llvm::StringSet<> Products = {
        "mm",     "matmul", "addmm",   "bmm",    "mv",  "linear",   "conv1d",
        "conv2d", "conv3d", "baddbmm", "einsum", "mul", "embedding"};
    const OverloadedOperatorKind Operator = Callee->getOverloadedOperator();
    // x.unsqueeze(1) - centers.unsqueeze(0): each with each.
    const bool Pairs =
        Operator == OO_Minus && llvm::any_of(E->arguments(), isSpread);
    if (Operator != OO_Star && !Pairs &&
        (!Callee->getIdentifier() || !Products.count(Callee->getName())))
      return;
    llvm::SmallVector<const Expr *, 4> Operands;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(E))
      Operands.push_back(Member->getImplicitObjectArgument());
    for (const Expr *Arg : E->arguments())
      if (isTensor(Arg->getType()))
        Operands.push_back(Arg);
    if (llvm::none_of(Operands, [&](const Expr *O) {
          return Origins.isParameter(O, In);
        }))
      return;
    if (isDone(Operands))
      return;
    const bool IsMatrixProduct =
        nameOf(Callee) == "mm" || nameOf(Callee) == "matmul";
    for (const Expr *O : Operands)
      if (!Origins.readsParameter(O, In))
        // weight.mm(x): the samples of x are its columns.
        Origins.read(O, E, In, /*Variable=*/false,
                     IsMatrixProduct && O != Operands[0] &&
                         Origins.isParameter(Operands[0], In) &&
                         isMatrix(O, Asked.Index.Context));
  }

  const Question &Asked;
  BatchOrigins &Origins;
  const FunctionDecl *In;
  const bool Models;
  const bool IsModel;
};

} // namespace

bool accel::migrate::makesOneRow(const CallExpr *E, const ASTContext &Context) {
  const llvm::StringRef Name = torchNameOf(E);
  if (Name.starts_with("rand") || Name == "from_blob")
    return hasOneRow(E, Context);
  const bool IsMethod = isa<CXXMemberCallExpr>(E);
  const unsigned Dim = IsMethod ? 0 : 1;
  // Of three dimensions, {1, samples, features}, the samples may be in the second.
  if ((Name == "view" || Name == "reshape") && Dim < E->getNumArgs()) {
    const InitListExpr *Sizes = listIn(E->getArg(Dim));
    return Sizes && (Sizes->getNumInits() == 2 || Sizes->getNumInits() == 4) &&
           constantOf(Sizes->getInit(0), Context) == 1;
  }
  return Name == "unsqueeze" && Dim < E->getNumArgs() &&
         constantOf(E->getArg(Dim), Context) == 0;
}

/// x.norm(), torch::sum(x): a number.
static bool isReducedToOne(const Expr *E) {
  static const llvm::StringSet<> Names = {"sum", "mean", "norm", "max",
                                          "min", "prod", "std",  "var"};
  const auto *Call = dyn_cast<CallExpr>(E);
  if (!Names.count(torchNameOf(Call)))
    return false;
  const unsigned Written = llvm::count_if(Call->arguments(), [](const Expr *A) {
    return !isa<CXXDefaultArgExpr>(A);
  });
  return Written == (isa<CXXMemberCallExpr>(Call) ? 0 : 1);
}

bool accel::migrate::isNoBatch(const Expr *E, const ASTContext &Context) {
  static const llvm::StringSet<> Names = {
      "zeros",     "ones",          "full",
      "eye",       "empty",         "zeros_like",
      "ones_like", "full_like",     "triu",
      "tril",      "scalar_tensor", "generate_square_subsequent_mask"};
  for (unsigned Depth = 0; E && Depth < 32; ++Depth) {
    E = plain(E);
    // torch::Tensor()
    if (const auto *Made = dyn_cast<CXXConstructExpr>(E);
        (Made && Made->getNumArgs() == 0) || isReducedToOne(E))
      return true;
    const llvm::StringRef Name = torchNameOf(E);
    if (Names.count(Name) ||
        // Sparse tensors are not cut.
        (Depth == 0 &&
         (Name.starts_with("to_sparse") || Name.starts_with("sparse_"))) ||
        (!Name.empty() && makesOneRow(cast<CallExpr>(E), Context)))
      return true;
    if (const auto *O = operatorCall(E, OO_Subscript);
        O && isTensor(O->getType()) && isTensor(O->getArg(0)->getType()) &&
        O->getArg(1)->getType()->isIntegerType())
      return !isField(E, Context);
    // Of what is put together row by row the other one may have the rows.
    if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
        O && O->isInfixBinaryOp() && isTensor(O->getArg(0)->getType()) &&
        isTensor(O->getArg(1)->getType()))
      return isNoBatch(O->getArg(0), Context) &&
             isNoBatch(O->getArg(1), Context);
    E = leadingOperand(E);
  }
  return false;
}

std::vector<Batch> accel::migrate::findBatches(const ProgramIndex &Index,
                                               const Cut &Loaded,
                                               SourceText &Text,
                                               bool OnlyWhole) {
  const Question Asked{Index, Loaded, OnlyWhole};
  BatchOrigins Origins(Index, Loaded, Text);
  bool AnyModel = false;
  for (const FunctionDecl *F : Index.Functions) {
    // A model's own methods are given what is shared out already, unless they
    // are the step, or a step gives them a class that only they can read.
    if ((isPartOfModel(F) && !Index.trainsDirectly(F) &&
         !Index.InStep.count(F) && !readsForItself(F, Origins)) ||
        Index.loadsSamples(F))
      continue;
    StepWalk Models(Asked, Origins, F, /*Models=*/true);
    Models.TraverseStmt(F->getBody());
    AnyModel |= Models.AnyModel;
    if (!Models.AnyModel) {
      Origins.OwnTensors = true;
      StepWalk(Asked, Origins, F, /*Models=*/false).TraverseStmt(F->getBody());
      Origins.OwnTensors = false;
    }
  }
  if (!OnlyWhole && !AnyModel && !Index.readsLoaders() && Origins.empty())
    for (const Selected &Rows : findSelected(Index))
      if (!Origins.readsParameter(Rows.E, Rows.In))
        Origins.read(Rows.E, Rows.E, Rows.In);
  Origins.shareAlike();
  return Origins.take();
}
