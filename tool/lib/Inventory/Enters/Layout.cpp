//===- Layout.cpp - Where a batch's samples are ---------------------------===//

#include "Layout.h"
#include "Fields.h"
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
    return torchNameOf(E) == "batch_first" && E->getNumArgs() == 1;
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
  return operatorCall(E, OO_Subscript) || Names.count(torchNameOf(E));
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
    return llvm::all_of(valuesOf(F),
                        [&](const Expr *Value) { return keeps(Value, P); });
  }

private:
  /// Whether a parameter is reached.
  bool follow(const Expr *E, unsigned Steps) {
    E = plain(E);
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
    for (const CXXCtorInitializer *Init : initsOf(F))
      BatchFirst |= setsBatchFirst(Init->getInit());
  }
  for (const FieldDecl *Field : Index.Fields)
    if (Field->hasInClassInitializer())
      BatchFirst |= setsBatchFirst(Field->getInClassInitializer());
}

/// Whether a model goes through the steps of its input itself: it takes `x[t]`, and
/// there are `x.size(1)` rows of what it keeps; or packs sequences that lie so.
static bool goesThroughSteps(const FunctionDecl *F, unsigned I, Trace &Back) {
  const ASTContext &Context = F->getASTContext();
  bool TakesSteps = false, KeepsRows = false, Packs = false;
  eachIn<CallExpr>(F->getBody(), [&](const CallExpr *E) {
    if (const Expr *Of = rowOf(E, Context).Tensor)
      TakesSteps |= Back.keeps(Of, I);
    else if (torchNameOf(E) == "pack_padded_sequence" && E->getNumArgs() > 2)
      Packs |= (isa<CXXDefaultArgExpr>(E->getArg(2)) ||
                constantOf(E->getArg(2), Context) == 0) &&
               Back.keeps(E->getArg(0), I);
    if (const InitListExpr *Sizes = sizesOfBuffer(E))
      for (const Expr *Size : Sizes->inits())
        if (const std::optional<SizeOf> Of = sizeOf(Size, F))
          KeepsRows |= Of->Dim == 1 && Back.keeps(Of->Tensor, I);
  });
  return Packs || (TakesSteps && KeepsRows);
}

/// Adds the numbers of the rows that code takes of parameter `I`: `edges[0]`,
/// `edges.select(0, 1)`; also where it gives it to a function of the program.
/// -1 is any number.
static void addRowNumbers(const FunctionDecl *F, unsigned I,
                          std::set<int64_t> &Found, unsigned Depth = 0) {
  const ASTContext &Context = F->getASTContext();
  Trace Back(F);
  eachIn<CallExpr>(F->getBody(), [&](const CallExpr *E) {
    const FunctionDecl *Called = E->getDirectCallee(), *Body = nullptr;
    constexpr unsigned Most = 3;
    if (const Row Taken = rowOf(E, Context); Taken.Tensor) {
      if (Back.keeps(Taken.Tensor, I))
        Found.insert(constantOf(Taken.Number, Context).value_or(-1));
    } else if (Called && !isLibrary(Called) && !modelCallOf(E) &&
               Depth < Most && Called->hasBody(Body)) {
      const llvm::ArrayRef<const Expr *> Args = passedBy(E);
      for (unsigned A = 0; A < Args.size() && A < Body->getNumParams(); ++A)
        if (isTensor(Args[A]->getType()) && Back.keeps(Args[A], I))
          addRowNumbers(Body, A, Found, Depth + 1);
    }
  });
}

/// The edges of a graph, their beginnings in row 0 and their ends in row 1.
static bool takesBothEnds(const FunctionDecl *F, unsigned I) {
  std::set<int64_t> Rows;
  addRowNumbers(F, I, Rows);
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
  return goesThroughSteps(Called, I, Back) || takesBothEnds(Called, I);
}

bool Layout::isLaidOutLikeOperand(const Expr *E) {
  static const llvm::StringSet<> Names = {
      "to",     "clone",        "contiguous", "detach", "cpu", "cuda",
      "narrow", "index_select", "slice",      "toType"};
  return Names.count(torchNameOf(E));
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
    const VarDecl *V = varNamedBy(E);
    return plain(V && V->getInit() ? V->getInit() : E) == Call.Call;
  };
  for (const ModelCall &Other : Others)
    for (unsigned I = 0; I < Other.Inputs.size(); ++I)
      if (IsIt(Other.Inputs[I]) &&
          (takesStepsFirst(Other, I, 0) ||
           (I == 0 && feedsStepsFirst(Other, Others, Depth + 1))))
        return true;
  return false;
}
