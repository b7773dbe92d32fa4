//===- Layout.cpp - Where a batch's samples are ---------------------------===//

#include "Layout.h"
#include "Sizes.h"
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
    if (nameOf(M) == "forward" && M->hasBody(Body))
      return Body;
  return nullptr;
}

static bool setsBatchFirst(const Stmt *S) {
  return anyIn<CallExpr>(S, [](const CallExpr *E) {
    const FunctionDecl *F = E->getDirectCallee();
    return nameOf(F) == "batch_first" && isTorch(F) && E->getNumArgs() == 1;
  });
}

static std::vector<ModelCall> modelCallsIn(const Stmt *S) {
  std::vector<ModelCall> Calls;
  eachIn<CallExpr>(S, [&](const CallExpr *E) {
    if (std::optional<ModelCall> Call = modelCallOf(E))
      Calls.push_back(std::move(*Call));
  });
  return Calls;
}

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
  return Names.count(nameOf(F)) && isTorch(F);
}

namespace {
/// Follows what a function of a model makes back to the function's parameters.
class Trace {
public:
  explicit Trace(const FunctionDecl *F, unsigned Depth = 0)
      : F(F), Depth(Depth), Known(usesIn(F)) {}

  /// Whether `E` is made of parameter `P`, of no other one, and with its dimensions
  /// as they are.
  bool keeps(const Expr *E, unsigned P) {
    Parameters.clear();
    Variables.clear();
    Changed = false;
    follow(E, 0);
    return !Changed && Parameters == std::set<unsigned>{P};
  }
  /// Whether everything that the function returns does.
  bool returns(unsigned P) {
    return returns(F->getBody(), P);
  }

private:
  bool returns(const Stmt *S, unsigned P) {
    if (!S || isa<LambdaExpr>(S))
      return true;
    if (const auto *Return = dyn_cast<ReturnStmt>(S))
      return keeps(Return->getRetValue(), P);
    return llvm::all_of(S->children(), [&](const Stmt *Child) {
      return returns(Child, P);
    });
  }

  /// Whether a parameter is reached.
  bool follow(const Expr *E, unsigned Steps) {
    E = E ? plain(E) : nullptr;
    if (!E || Steps > 32 || !isTensor(E->getType()))
      return false;
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      return followVariable(Ref->getDecl(), Steps);
    if (const std::optional<ModelCall> Call = modelCallOf(E)) {
      const bool Reached =
          !Call->Inputs.empty() && follow(Call->Inputs.front(), Steps + 1);
      Changed |= Reached && !keepsDimensions(*Call);
      return Reached;
    }
    const auto *Call = dyn_cast<CallExpr>(E);
    if (!Call)
      return false;
    bool Reached = false;
    if (const auto *Member = dyn_cast<CXXMemberCallExpr>(Call))
      Reached |= follow(Member->getImplicitObjectArgument(), Steps + 1);
    for (const Expr *Arg : Call->arguments())
      Reached |= follow(Arg, Steps + 1);
    Changed |= Reached && changesDimensions(E);
    return Reached;
  }
  bool followVariable(const ValueDecl *V, unsigned Steps) {
    const auto [It, New] = Variables.try_emplace(V, false);
    if (!New)
      return It->second;
    bool Reached = false;
    if (const auto *P = dyn_cast<ParmVarDecl>(V); P && P->getDeclContext() == F) {
      Parameters.insert(P->getFunctionScopeIndex());
      Reached = Variables[V] = true;
    }
    // x = features; x = front(x.transpose(1, 2)): what is made of the variable itself is
    // made of what it was given before.
    for (const Expr *Made : Known[V].Made)
      Variables[V] = Reached |= follow(Made, Steps + 1);
    return Reached;
  }
  /// What a layer of LibTorch makes is taken to be laid out like its first input;
  /// of a part of the program's own its code says it.
  bool keepsDimensions(const ModelCall &Call) const {
    const CXXRecordDecl *Model = moduleOf(Call.Model->getType());
    if (!Model || isTorch(Model))
      return true;
    const FunctionDecl *Called = methodOf(Call, Model);
    return Called && Depth < 4 && Trace(Called, Depth + 1).returns(0);
  }

  const FunctionDecl *F;
  const unsigned Depth;
  std::map<const ValueDecl *, Uses> Known;
  std::map<const ValueDecl *, bool> Variables; ///< Whether they reach a parameter.
  std::set<unsigned> Parameters;
  bool Changed = false;
};
} // namespace

Layout::Layout(const ProgramIndex &Index) {
  for (const FunctionDecl *F : Index.Functions) {
    BatchFirst |= setsBatchFirst(F->getBody());
    if (const auto *Ctor = dyn_cast<CXXConstructorDecl>(F))
      for (const CXXCtorInitializer *Init : Ctor->inits())
        BatchFirst |= setsBatchFirst(Init->getInit());
  }
  for (const FieldDecl *Field : Index.Fields)
    if (Field->hasInClassInitializer())
      BatchFirst |= setsBatchFirst(Field->getInClassInitializer());
}

/// `x[i]`, `x.select(0, i)`: the tensor and the row's number; else null.
static std::pair<const Expr *, const Expr *> rowIn(const CallExpr *E,
                                                   const ASTContext &Context) {
  const auto *O = dyn_cast<CXXOperatorCallExpr>(E);
  if (O && O->getOperator() == OO_Subscript &&
      isTensor(O->getArg(0)->getType()) &&
      O->getArg(1)->getType()->isIntegerType())
    return {O->getArg(0), O->getArg(1)};
  const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
  if (Member && torchNameOf(E) == "select" &&
      constantOf(E->getArg(0), Context) == 0)
    return {Member->getImplicitObjectArgument(), E->getArg(1)};
  return {nullptr, nullptr};
}

namespace {
/// Whether a model goes through the steps of its input itself: it takes `x[t]`, and
/// there are `x.size(1)` rows of what it keeps; or packs sequences that lie so.
class StepFinder : public AstVisitor {
public:
  StepFinder(const FunctionDecl *F, unsigned I, Trace &Back)
      : F(F), I(I), Back(Back) {}

  bool TakesSteps = false, KeepsRows = false, Packs = false;

  bool VisitCallExpr(CallExpr *E) override {
    if (const Expr *Of = rowIn(E, F->getASTContext()).first)
      TakesSteps |= Back.keeps(Of, I);
    else if (torchNameOf(E) == "pack_padded_sequence" && E->getNumArgs() > 2)
      Packs |= (isa<CXXDefaultArgExpr>(E->getArg(2)) ||
                constantOf(E->getArg(2), F->getASTContext()) == 0) &&
               Back.keeps(E->getArg(0), I);
    if (const InitListExpr *Sizes = sizesOfBuffer(E))
      for (const Expr *Size : Sizes->inits())
        if (const std::optional<SizeOf> Of = sizeOf(Size, F))
          KeepsRows |= Of->Dim == 1 && Back.keeps(Of->Tensor, I);
    return true;
  }

private:
  const FunctionDecl *F;
  const unsigned I;
  Trace &Back;
};
} // namespace

namespace {
/// The rows that code takes of a parameter by their numbers: `edges[0]`,
/// `edges.select(0, 1)`; also where it gives it to a function of the program.
class RowNumbers : public AstVisitor {
public:
  RowNumbers(const FunctionDecl *F, unsigned I, std::set<int64_t> &Found,
             unsigned Depth = 0)
      : F(F), I(I), Found(Found), Depth(Depth), Back(F) {}

  bool VisitCallExpr(CallExpr *E) override {
    const ASTContext &Context = F->getASTContext();
    const auto [Of, Number] = rowIn(E, Context);
    if (!Of)
      given(E);
    else if (Back.keeps(Of, I))
      Found.insert(constantOf(Number, Context).value_or(-1));
    return true;
  }

private:
  void given(const CallExpr *E) {
    const FunctionDecl *Called = E->getDirectCallee(), *Body = nullptr;
    constexpr unsigned Most = 3;
    if (!Called || isLibrary(Called) || modelCallOf(E) || Depth >= Most ||
        !Called->hasBody(Body))
      return;
    const llvm::ArrayRef<const Expr *> Args = passedBy(E);
    for (unsigned A = 0; A < Args.size() && A < Body->getNumParams(); ++A)
      if (isTensor(Args[A]->getType()) && Back.keeps(Args[A], I))
        RowNumbers(Body, A, Found, Depth + 1)
            .TraverseStmt(Body->getBody());
  }

  const FunctionDecl *F;
  const unsigned I;
  std::set<int64_t> &Found;
  const unsigned Depth;
  Trace Back;
};
} // namespace

/// The edges of a graph, their beginnings in row 0 and their ends in row 1.
static bool takesBothEnds(const FunctionDecl *F, unsigned I) {
  std::set<int64_t> Rows;
  RowNumbers(F, I, Rows).TraverseStmt(F->getBody());
  return Rows == std::set<int64_t>{0, 1};
}

bool Layout::takesStepsFirst(const ModelCall &Call, unsigned I,
                             unsigned Depth) const {
  const CXXRecordDecl *Model = moduleOf(Call.Model->getType());
  if (!Model || !Model->getIdentifier() || Depth > 4)
    return false;
  if (isTorch(Model))
    return I < inputsWithStepsFirst(Model->getName(), BatchFirst);
  const FunctionDecl *Called = methodOf(Call, Model);
  if (!Called)
    return false;
  Trace Back(Called);
  for (const ModelCall &Part : modelCallsIn(Called->getBody()))
    for (unsigned Input = 0; Input < Part.Inputs.size(); ++Input)
      if (takesStepsFirst(Part, Input, Depth + 1) &&
          Back.keeps(Part.Inputs[Input], I))
        return true;
  StepFinder Steps(Called, I, Back);
  Steps.TraverseStmt(Called->getBody());
  return Steps.Packs || (Steps.TakesSteps && Steps.KeepsRows) ||
         takesBothEnds(Called, I);
}

bool Layout::isLaidOutLikeOperand(const Expr *E) {
  static const llvm::StringSet<> Names = {
      "to",     "clone",        "contiguous", "detach", "cpu", "cuda",
      "narrow", "index_select", "slice",      "toType"};
  const FunctionDecl *F = calleeOf(plain(E));
  return Names.count(nameOf(F)) && isTorch(F);
}

bool Layout::hasStepsFirst(const ModelCall &Call, unsigned I,
                           const FunctionDecl *In) const {
  if (takesStepsFirst(Call, I, 0))
    return true;
  if (I != 0 || !In || !In->hasBody())
    return false;
  return feedsStepsFirst(Call, modelCallsIn(In->getBody()), 0);
}

bool Layout::feedsStepsFirst(const ModelCall &Call,
                             llvm::ArrayRef<ModelCall> Others,
                             unsigned Depth) const {
  const CXXRecordDecl *Model = moduleOf(Call.Model->getType());
  if (!Model || !isTorch(Model) || Depth > 8)
    return false;
  const auto IsIt = [&](const Expr *E) {
    E = plain(E);
    if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
      if (const auto *V = dyn_cast<VarDecl>(Ref->getDecl()); V && V->getInit())
        E = plain(V->getInit());
    return E == Call.Call;
  };
  for (const ModelCall &Other : Others)
    for (unsigned I = 0; I < Other.Inputs.size(); ++I)
      if (IsIt(Other.Inputs[I]) &&
          (takesStepsFirst(Other, I, 0) ||
           (I == 0 && feedsStepsFirst(Other, Others, Depth + 1))))
        return true;
  return false;
}
