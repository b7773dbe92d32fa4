//===- Layout.cpp - Where a batch's samples are ---------------------------===//

#include "Layout.h"
#include "Uses.h"

#include "Code/AstVisitor.h"
#include "Code/TorchTypes.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

using namespace accel::migrate;
using namespace clang;

/// How many inputs of one of LibTorch's layers have steps first.
static unsigned inputsWithStepsFirst(llvm::StringRef Layer, bool BatchFirst) {
  return llvm::StringSwitch<unsigned>(Layer)
      .Cases("TransformerEncoderImpl", "TransformerEncoderLayerImpl", 1)
      .Cases("TransformerImpl", "TransformerDecoderImpl",
             "TransformerDecoderLayerImpl", 2)
      .Case("MultiheadAttentionImpl", 3)
      .Cases("RNNImpl", "LSTMImpl", "GRUImpl", BatchFirst ? 0 : 1)
      .Default(0);
}

/// The method of the model that a call runs, with its body: forward where a holder
/// is called; null where it is not seen.
static const FunctionDecl *methodOf(const ModelCall &Call,
                                    const CXXRecordDecl *Model) {
  const FunctionDecl *Body = nullptr;
  if (const FunctionDecl *F = Call.Call->getDirectCallee(); F && !isTorch(F))
    return F->hasBody(Body) ? Body : nullptr;
  for (const CXXMethodDecl *M : Model->methods())
    if (M->getIdentifier() && M->getName() == "forward" && M->hasBody(Body))
      return Body;
  return nullptr;
}

namespace {
class BatchFirstFinder : public AstVisitor {
public:
  bool Found = false;

  bool VisitCallExpr(CallExpr *E) override {
    const FunctionDecl *F = E->getDirectCallee();
    Found |= F && F->getIdentifier() && F->getName() == "batch_first" &&
             isTorch(F) && E->getNumArgs() == 1;
    return !Found;
  }
};

class ModelCallFinder : public AstVisitor {
public:
  std::vector<ModelCall> Calls;

  bool VisitCallExpr(CallExpr *E) override {
    if (std::optional<ModelCall> Call = modelCallOf(E))
      Calls.push_back(std::move(*Call));
    return true;
  }
};
} // namespace

/// Whether `E` may exchange the dimensions of what it is made from, or change
/// their number.
static bool changesDimensions(const Expr *E) {
  static const llvm::StringSet<> Names = {
      "transpose",  "permute", "t",         "movedim", "swapaxes", "swapdims",
      "view",       "reshape", "flatten",   "stack",   "squeeze",  "unsqueeze",
      "select",     "sum",     "mean",      "index",   "matmul",   "einsum",
      "unflatten",  "max",     "argmax",    "mm",      "bmm"};
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(E))
    return O->getOperator() == OO_Subscript;
  const auto *Call = dyn_cast<CallExpr>(E);
  const FunctionDecl *F = Call ? Call->getDirectCallee() : nullptr;
  return F && F->getIdentifier() && isTorch(F) && Names.count(F->getName());
}

/// Follows what a function of a model gives to a layer back to its parameters.
class Layout::Trace {
public:
  explicit Trace(const FunctionDecl *F) : F(F), Known(usesIn(F)) {}

  /// Whether `E` is made of parameter `P`, of no other one, and with its dimensions
  /// as they are.
  bool keeps(const Expr *E, unsigned P) {
    Seen.clear();
    Parameters.clear();
    Changed = false;
    follow(E, 0);
    return !Changed && Parameters == std::set<unsigned>{P};
  }

private:
  void follow(const Expr *E, unsigned Depth) {
    E = plain(E);
    if (!E || Depth > 32 || !isTensor(E->getType()))
      return;
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      return followVariable(Ref->getDecl(), Depth);
    // What a model's part makes of its first input is laid out like it.
    if (const std::optional<ModelCall> Call = modelCallOf(E)) {
      if (!Call->Inputs.empty())
        follow(Call->Inputs.front(), Depth + 1);
      return;
    }
    const auto *Call = dyn_cast<CallExpr>(E);
    if (!Call)
      return;
    Changed |= changesDimensions(E);
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(Call))
      follow(Member->getImplicitObjectArgument(), Depth + 1);
    for (const Expr *Arg : Call->arguments())
      follow(Arg, Depth + 1);
  }
  void followVariable(const ValueDecl *V, unsigned Depth) {
    if (!Seen.insert(V).second)
      return;
    if (const auto *P = dyn_cast<ParmVarDecl>(V); P && P->getDeclContext() == F)
      Parameters.insert(P->getFunctionScopeIndex());
    for (const Expr *Made : Known[V].Made)
      follow(Made, Depth + 1);
  }

  const FunctionDecl *F;
  std::map<const ValueDecl *, Uses> Known;
  std::set<const ValueDecl *> Seen;
  std::set<unsigned> Parameters;
  bool Changed = false;
};

Layout::Layout(const ProgramIndex &Index) {
  BatchFirstFinder Finder;
  for (const FunctionDecl *F : Index.Functions) {
    Finder.TraverseStmt(F->getBody());
    if (const auto *Ctor = dyn_cast<CXXConstructorDecl>(F))
      for (const CXXCtorInitializer *Init : Ctor->inits())
        Finder.TraverseStmt(Init->getInit());
  }
  BatchFirst = Finder.Found;
}

bool Layout::hasStepsFirst(const ModelCall &Call, unsigned I,
                           unsigned Depth) const {
  const CXXRecordDecl *Model = moduleOf(Call.Model->getType());
  if (!Model || !Model->getIdentifier() || Depth > 4)
    return false;
  if (isTorch(Model))
    return I < inputsWithStepsFirst(Model->getName(), BatchFirst);
  const FunctionDecl *Called = methodOf(Call, Model);
  if (!Called)
    return false;
  ModelCallFinder Finder;
  Finder.TraverseStmt(Called->getBody());
  Trace Back(Called);
  for (const ModelCall &Part : Finder.Calls)
    for (unsigned Input = 0; Input < Part.Inputs.size(); ++Input)
      if (hasStepsFirst(Part, Input, Depth + 1) &&
          Back.keeps(Part.Inputs[Input], I))
        return true;
  return false;
}

bool Layout::isLaidOutLikeOperand(const Expr *E) {
  static const llvm::StringSet<> Names = {
      "to",     "clone",        "contiguous", "detach", "cpu", "cuda",
      "narrow", "index_select", "slice",      "toType"};
  const FunctionDecl *F = calleeOf(plain(E));
  return F && F->getIdentifier() && isTorch(F) && Names.count(F->getName());
}

bool Layout::hasStepsFirst(const ModelCall &Call, unsigned I) const {
  return hasStepsFirst(Call, I, 0);
}
