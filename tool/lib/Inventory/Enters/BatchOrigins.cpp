//===- BatchOrigins.cpp - Where the step makes what a model reads ---------===//

#include "BatchOrigins.h"
#include "Fields.h"
#include "FromHost.h"
#include "Groups.h"
#include "Layout.h"
#include "Selected.h"
#include "Sizes.h"
#include "TakenApart.h"
#include "Together.h"

#include "Code/AstVisitor.h"
#include "Code/Closures.h"
#include "Code/ModelCalls.h"
#include "Code/TorchTypes.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace accel::migrate;
using namespace clang;

/// Notes the places where a function calls those of the program, and has the
/// standard library call them: `std::async(train, net, x)`.
void BatchOrigins::noteCalls(const FunctionDecl *In) {
  eachIn<CallExpr>(In->getBody(), [&](const CallExpr *E) {
    if (modelCallOf(E) && !isPartOfModel(In) &&
        Index.isInStep(E->getExprLoc(), In))
      for (const FunctionDecl *Body : bodiesRunBy(E, Index))
        CalledModels.insert(Body);
    const FunctionDecl *F = E->getDirectCallee();
    const llvm::ArrayRef<const Expr *> Args = passedBy(E);
    for (const FunctionDecl *Body : Index.callablesOf(E))
      Callers.insert({Body, {In, Args}});
    if (F && !isLibrary(F))
      for (const FunctionDecl *Body : Index.bodiesOf(F))
        Callers.insert({Body, {In, Args}});
    if (isInStd(F) && !isa<CXXMethodDecl>(F))
      for (const Expr *Arg : E->arguments())
        if (const auto *Task = dyn_cast_or_null<FunctionDecl>(declNamedBy(Arg)))
          for (const FunctionDecl *Body : Index.bodiesOf(Task))
            Given.insert(Body);
  });
}

/// What the program's calls give a parameter, at each place; null where they
/// give it nothing.
std::vector<BatchOrigins::Made>
BatchOrigins::givenTo(const ParmVarDecl *P) const {
  auto [From, To] =
      Callers.equal_range(dyn_cast<FunctionDecl>(P->getDeclContext()));
  const unsigned I = P->getFunctionScopeIndex();
  std::vector<Made> All;
  for (auto It = From; It != To; ++It) {
    const auto &[In, Args] = It->second;
    All.push_back({I < Args.size() ? Args[I] : nullptr, In});
  }
  return All;
}

BatchOrigins::BatchOrigins(const ProgramIndex &Index, const Cut &Loaded,
                           SourceText &Text)
    : Index(Index), Loaded(Loaded), Text(Text) {
  for (const FunctionDecl *F : Index.Functions)
    noteCalls(F);
}

const Uses &BatchOrigins::usesOf(const ValueDecl *V, const FunctionDecl *F) {
  auto [It, New] = Known.try_emplace(F);
  if (New)
    It->second = usesIn(F);
  return It->second[V];
}

bool BatchOrigins::isDataSet(const VarDecl *V) {
  if (!DataSets) {
    DataSets.emplace();
    for (const Selected &Rows : findSelected(Index))
      DataSets->insert(rootOf(Rows.E));
  }
  return DataSets->count(V) != 0;
}

bool BatchOrigins::isParameter(const Expr *E, const FunctionDecl *F,
                               unsigned Depth) {
  const ValueDecl *Root = rootOf(E);
  if (!Root)
    return false;
  if (usesOf(Root, F).Leaf)
    return true;
  if (const auto *P = dyn_cast<ParmVarDecl>(Root); P && Depth < 3)
    if (llvm::any_of(givenTo(P), [&](const Made &Arg) {
          return Arg.E && isParameter(Arg.E, Arg.In, Depth + 1);
        }))
      return true;
  const auto *V = dyn_cast<VarDecl>(Root);
  return (isa<FieldDecl, ParmVarDecl>(Root) || (V && V->hasGlobalStorage())) &&
         llvm::any_of(Index.Functions, [&](const FunctionDecl *Other) {
           return usesOf(Root, Other).Leaf;
         });
}

/// Whether the host goes through the elements of a variable, in `F` or in a
/// function that is given it, or of what is made of it. Every element of a
/// tensor that is shared out would be asked for over the network: it is shared
/// out behind that.
bool BatchOrigins::isReadByRows(const ValueDecl *V, const FunctionDecl *F,
                                unsigned Depth) {
  const Uses &U = usesOf(V, F);
  if (U.ByRows || Depth == 4)
    return U.ByRows;
  for (const ParmVarDecl *P : U.Given)
    if (isReadByRows(P, cast<FunctionDecl>(P->getDeclContext()), Depth + 1))
      return true;
  return llvm::any_of(Known[F], [&](const auto &Other) {
    return Other.first != V &&
           llvm::any_of(Other.second.Made,
                        [&](const Expr *Made) { return rootOf(Made) == V; }) &&
           isReadByRows(Other.first, F, Depth + 1);
  });
}

bool BatchOrigins::readsParameter(const Stmt *S, const FunctionDecl *F,
                                  unsigned Depth) {
  // x.view({-1, weight.size(0)})
  const auto *E = dyn_cast_or_null<Expr>(S);
  if (!S || describesTensor(calleeOf(E)))
    return false;
  if (E && isa<DeclRefExpr, MemberExpr>(E) &&
      (isTensor(E->getType()) || isContainerOfTensors(E->getType()))) {
    if (isParameter(E, F))
      return true;
    // auto d = x - centers; auto a = torch::exp(-d);
    constexpr unsigned Most = 4;
    const VarDecl *V = varNamedBy(E);
    if (V && V->isLocalVarDecl() && V->hasLocalStorage() && Depth < Most)
      return llvm::any_of(usesOf(V, F).Made, [&](const Expr *Made) {
        return readsParameter(Made, F, Depth + 1);
      });
  }
  return llvm::any_of(S->children(), [&](const Stmt *Child) {
    return readsParameter(Child, F, Depth);
  });
}

/// Where it stands in the text of a macro that goes back from the loss, too: each use of
/// that is a step. The text of others may be used for evaluations.
std::optional<TextRange> BatchOrigins::inStepOfMacro(const Expr *E) const {
  if (Text.range(E->getSourceRange()))
    return std::nullopt;
  const std::optional<TextRange> R = Text.rangeOrMacro(E->getSourceRange());
  const bool IsInStep =
      R && R->Use && llvm::any_of(Index.Backwards, [&](const BackwardCall &B) {
        return Text.isWrittenBy(B.Call->getEndLoc(), R->Use);
      });
  return IsInStep ? R : std::nullopt;
}

std::vector<Batch> BatchOrigins::take() {
  // A macro's text is shared out where all of its uses want that.
  const std::vector<UsedMacro> &Uses = Text.macroUses();
  llvm::erase_if(Found, [&](const Batch &B) {
    const std::optional<TextRange> R = inStepOfMacro(B.E);
    if (!R)
      return false;
    const TextRange &Own = Uses[R->Use - 1].Text;
    for (unsigned I = 0; I < Uses.size(); ++I)
      if (Uses[I].Text.File == Own.File && Uses[I].Text.Offset == Own.Offset &&
          !Places.count({R->File, R->Offset, I + 1}))
        return true;
    return false;
  });
  return std::move(Found);
}

bool BatchOrigins::share(const Expr *E, const FunctionDecl *F, bool Points) {
  E = plain(E);
  // What a learned tensor is changed by has the rows of that.
  if (const ValueDecl *Root = rootOf(E); Root && usesOf(Root, F).Gradients)
    return false;
  if (E == Variable) {
    Stayed = true;
    return false;
  }
  std::optional<TextRange> R = Text.range(E->getSourceRange());
  if (!R)
    R = inStepOfMacro(E);
  if (!R)
    return false;
  if (Places.insert({R->File, R->Offset, R->Use}).second)
    Found.push_back({F, E, ReadBy, ReadIn, Points, StepsFirst});
  return true;
}

/// Whether the samples of what `E` is made from are where those of `E` are, as
/// far as that matters: not of `columns.t()`.
bool BatchOrigins::knowsLayout(const Expr *E) const {
  const llvm::StringRef Name = torchNameOf(E);
  return Name != "t" && Name != "T" && Name != "numpy_T" &&
         (!StepsFirst || Layout::isLaidOutLikeOperand(E));
}

/// Behind a variable's declaration: in each place where it is read, and where
/// each caller gives it.
void BatchOrigins::shareAtUse(const DeclRefExpr *E, const FunctionDecl *F) {
  Seen.erase(E->getDecl());
  share(E, F);
}

/// The tensors in what is given, each as a whole, from the last one on.
static std::vector<const Expr *> tensorsIn(std::vector<const Stmt *> Work) {
  std::vector<const Expr *> Found;
  while (!Work.empty()) {
    const Stmt *S = Work.back();
    Work.pop_back();
    if (const auto *E = dyn_cast_or_null<Expr>(S); E && isTensor(E->getType()))
      Found.push_back(E);
    else if (S)
      Work.insert(Work.end(), S->child_begin(), S->child_end());
  }
  return Found;
}

void BatchOrigins::read(const Expr *Input, const CallExpr *By,
                        const FunctionDecl *F, bool IsVariable,
                        bool IsStepsFirst) {
  StepsFirst = IsStepsFirst;
  ReadBy = By;
  ReadIn = F;
  Variable = IsVariable ? plain(Input) : nullptr;
  Seen.clear();
  if (isTensor(plain(Input)->getType()) ||
      isNamedBatch(plain(Input)->getType()))
    return resolve(Input, F, 0);
  if (isGroup(Input, By, Index)) {
    Input = bare(Input); // Not the ArrayRef that is made of it.
    if (!Loaded.in(plain(Input)))
      share(Input, F);
    return;
  }
  // forward({x}) of TorchScript's models, and inputs.push_back(x); forward(inputs);
  if (nameOf(recordOf(Input->getType())) != "vector")
    return;
  std::vector<const Stmt *> Work = {Input};
  if (const auto *List = dyn_cast_or_null<VarDecl>(rootOf(Input));
      List && isScriptInputs(List->getType()) && List->isLocalVarDecl()) {
    const Uses &U = usesOf(List, F);
    Work.assign(U.Elements.begin(), U.Elements.end());
  }
  for (const Expr *E : tensorsIn(std::move(Work)))
    resolve(E, F, 0);
}

/// `batch->x` of a parameter: what is behind a pointer, nobody shares out for it.
static bool isBehindPointer(const Expr *E) {
  return anyOperand(E, [](const Expr *Operand) {
    const auto *M = dyn_cast<MemberExpr>(Operand);
    if (!M || !M->isArrow())
      return false;
    const auto *O = dyn_cast<CXXOperatorCallExpr>(plain(M->getBase()));
    return isa_and_nonnull<ParmVarDecl>(
        declNamedBy(O ? O->getArg(0) : M->getBase()));
  });
}

/// Whether a model helps to make `E`: not with `net->noise(32)`, which names nothing that
/// the model learns. (What `net->first_state(32)` makes of zeros is no batch either.)
bool BatchOrigins::isGivenByModel(const Expr *E) const {
  const auto Learns = [](const Stmt *S) {
    const auto *M = dyn_cast<MemberExpr>(S);
    if (!M || !isa<FieldDecl>(M->getMemberDecl()))
      return M && isa<CXXThisExpr>(plain(M->getBase())); // Its other methods.
    return holdsTensors(M->getType()) || moduleOf(M->getType()) ||
           isAnyModule(M->getType());
  };
  return existsIn(
      E,
      [&](const Stmt *S) {
        const std::optional<ModelCall> Call = modelCallOf(dyn_cast<Expr>(S));
        if (!Call)
          return false;
        const auto IsNumber = [](const Expr *Input) {
          return Input->getType()->isArithmeticType();
        };
        const auto Bodies = Index.bodiesOf(Call->Call->getDirectCallee());
        return Bodies.empty() || !llvm::all_of(Call->Inputs, IsNumber) ||
               llvm::any_of(Bodies, [&](const FunctionDecl *Body) {
                 return existsIn(Body->getBody(), Learns) ||
                        llvm::any_of(valuesOf(Body), [&](const Expr *Value) {
                          return isNoBatch(Value, Index.Context);
                        });
               });
      },
      LambdaBodies::Skip);
}

/// Whether `E` is one image, or another tensor of one row, that variables pass on:
/// `auto image = content.clone().requires_grad_();`
bool BatchOrigins::isOneRow(const Expr *E, const FunctionDecl *F, unsigned Depth) {
  constexpr unsigned Deepest = 6;
  if (!E || Depth > Deepest)
    return false;
  if (const VarDecl *V = variableOf(E)) {
    const Uses &U = usesOf(V, F);
    return V->isLocalVarDecl() && !U.Made.empty() &&
           llvm::all_of(U.Made, [&](const Expr *Made) {
             return isOneRow(Made, F, Depth + 1);
           });
  }
  const auto *Call = dyn_cast<CallExpr>(plain(E));
  if (!Call || makesOneRow(Call, Index.Context))
    return Call;
  return (Layout::isLaidOutLikeOperand(Call) ||
          torchNameOf(Call).contains("requires_grad")) &&
         isOneRow(leadingOperand(Call), F, Depth + 1);
}

/// `auto x = rows; x = torch::cat({x, attack(x)});`: x is whole where it is made, and
/// what it is given later is made of that, too.
bool BatchOrigins::becomesShared(const Expr *E, const FunctionDecl *F) {
  const VarDecl *V = variableOf(E);
  const Expr *Init = V && V->isLocalVarDecl() ? V->getInit() : nullptr;
  if (!Init || Loaded.in(Init) || isNoBatch(Init, Index.Context))
    return false;
  const Uses &U = usesOf(V, F);
  return U.Made.size() > 1 && !U.Leaf &&
         llvm::all_of(U.Made, [&](const Expr *Made) {
           return Made == Init || isMadeOf(Made, V);
         });
}

void BatchOrigins::resolve(const Expr *E, const FunctionDecl *F,
                           unsigned Depth) {
  E = plain(E);
  if (!E || Depth > 6 ||
      (Loaded.in(E) && !isBehindPointer(E) && !becomesShared(E, F)) ||
      isGivenByModel(E) || isNoBatch(E, Index.Context) ||
      isObservation(E, ReadBy, Index))
    return;
  const bool Named = isNamedBatch(E->getType());
  if (!Named && !isTensor(E->getType()))
    return;
  if (const auto *Ref = dyn_cast<DeclRefExpr>(E))
    return resolveVariable(Ref, F, Depth);
  // What a function makes is shared out as a whole where it is called.
  if (Named || isField(E, Index.Context))
    return void(share(E, F));
  if (const std::optional<ReturnedValue> Value = returnedValueOf(E);
      Value && resolveReturned(*Value, F, Depth))
    return;
  if (shareStruct(E, F) || resolveJoined(E, F, Depth))
    return;
  // x.view({-1, 784}): x is the batch, where it is made in the step.
  if (resolveRows(E, F, Depth))
    return;
  if (isMadeOfGiven(leadingOperand(E), F))
    return;
  // Points that an object keeps stay leaves, as those of a variable do.
  const bool Points = isParameter(E, F);
  if (!Points || isa<MemberExpr>(E))
    share(E, F, Points);
}

/// Whether all that is done with a variable is to calculate with it as a whole.
bool BatchOrigins::isOnlyRead(const ValueDecl *V, const FunctionDecl *F) const {
  return isOnlyCalculatedWith(V, F->getBody(), Index) && !isWritten(V, F, Index);
}

/// `auto [x, y] = next_batch();`: a pair of tensors is shared out where it
/// comes to the step.
bool BatchOrigins::shareTogether(const CallExpr *Call, const FunctionDecl *F) {
  // What a loop over a range takes its elements with is not spelled.
  if (const auto *O = dyn_cast<CXXOperatorCallExpr>(Call);
      O && O->getOperator() != OO_Call)
    return false;
  if (StepsFirst || isTensor(Call->getType()) || !isBatch(Call->getType()) ||
      !isInStep(Call->getExprLoc(), F))
    return false;
  const auto Held = variablesOf(Call, F);
  const auto MayBeShared = [&](const ValueDecl *V) {
    return V && !usesOf(V, F).Written && !usesOf(V, F).Leaf &&
           (isa<BindingDecl>(V) || cast<VarDecl>(V)->hasLocalStorage()) &&
           isOnlyRead(V, F);
  };
  return !Held.empty() && llvm::all_of(Held, MayBeShared) && share(Call, F);
}

/// The rows of `E`, `0.5 * (left + right)`, may be those of a variable that is made
/// in the step, or of a struct's tensor: that is shared out instead.
bool BatchOrigins::resolveRows(const Expr *E, const FunctionDecl *F,
                               unsigned Depth) {
  constexpr unsigned Most = 8;
  bool Selects = false;
  for (unsigned I = 0; I < Most; ++I) {
    E = plain(E);
    if (!knowsLayout(E) || (I > 0 && isNoBatch(E, Index.Context)))
      return false;
    Selects |= selectsRows(E) && !selectsOfEachRow(E, Index.Context);
    const Expr *Operand = leadingOperand(E);
    if (!Operand && !StepsFirst)
      Operand = leadingArgumentOf(E, Index);
    if (!Operand || plain(Operand) == E || callsModel(Operand) ||
        isMadeOfGiven(Operand, F))
      return false;
    E = plain(Operand);
    if (isa<MemberExpr>(E))
      return !Selects && shareStruct(E, F);
    const auto *Ref = dyn_cast<DeclRefExpr>(E);
    if (!Ref)
      continue;
    const auto *V = dyn_cast<VarDecl>(Ref->getDecl());
    // What is taken out of what a caller gives is the batch, not all of that.
    if (!V || !V->hasLocalStorage() || !isInStep(V->getLocation(), F) ||
        (Selects && isa<ParmVarDecl>(V)) || usesOf(V, F).Leaf ||
        isReadByRows(V, F))
      return false;
    resolveVariable(Ref, F, Depth);
    return true;
  }
  return false;
}

/// `torch::cat({x, y}, 1)` of what is made in the step: x and y are batches.
bool BatchOrigins::resolveJoined(const Expr *E, const FunctionDecl *F,
                                 unsigned Depth) {
  const auto *Call = dyn_cast<CallExpr>(plain(E));
  if (torchNameOf(Call) != "cat" || Call->getNumArgs() != 2 || StepsFirst)
    return false;
  const std::optional<int64_t> Dim = constantOf(Call->getArg(1), Index.Context);
  if (!Dim || *Dim == 0)
    return false;
  llvm::SmallVector<const DeclRefExpr *, 4> Joined;
  std::vector<Made> Structs;
  const std::vector<const Expr *> Parts = tensorsIn({Call->getArg(0)});
  for (const Expr *Part : Parts) {
    if (isMadeOfGiven(Part, F))
      continue;
    if (const VarDecl *Whole = structNamedBy(Part);
        Whole && structOf(Whole, F, Structs, /*Depth=*/0))
      continue;
    const auto *Ref = dyn_cast<DeclRefExpr>(plain(Part));
    const auto *V = Ref ? dyn_cast<VarDecl>(Ref->getDecl()) : nullptr;
    if (!V || isa<ParmVarDecl>(V) || !V->hasLocalStorage() ||
        !isInStep(V->getLocation(), F) || usesOf(V, F).Leaf)
      return false;
    Joined.push_back(Ref);
  }
  for (const Made &S : Structs)
    share(S.E, S.In);
  for (const DeclRefExpr *Ref : Joined)
    resolveVariable(Ref, F, Depth + 1);
  return !Parts.empty();
}

bool BatchOrigins::isGiven(const ReturnedValue &Value,
                           const FunctionDecl *F) const {
  const std::optional<ModelCall> Model = modelCallOf(Value.Call);
  return Model && isInStep(Value.Call->getExprLoc(), F) &&
         llvm::any_of(Model->Inputs, [](const Expr *Input) {
           return isTensor(plain(Input)->getType());
         });
}

bool BatchOrigins::isMadeOfGiven(const Expr *E, const FunctionDecl *F) const {
  return anyOperand(E, [&](const Expr *Operand) {
    const std::optional<ReturnedValue> Value = returnedValueOf(Operand);
    return Value && isGiven(*Value, F);
  });
}

/// A function of the program makes several tensors: all of them are shared out
/// where it is called, or this one there.
bool BatchOrigins::resolveReturned(const ReturnedValue &Value,
                                   const FunctionDecl *In, unsigned Depth) {
  if (isGiven(Value, In) || shareTogether(Value.Call, In))
    return true;
  const FunctionDecl *F = Value.Call->getDirectCallee(), *Body = nullptr;
  if (!F || !F->hasBody(Body) || !Index.isOwn(Body) ||
      Index.loadsSamples(Body) || !isInStep(Body->getLocation(), Body) ||
      isPartOfModel(Body))
    return false;
  const auto From = returnedFrom(Body, Value.Index);
  for (const Expr *E : From)
    resolve(E, Body, Depth + 1);
  return !From.empty();
}

/// `y + h * f(y)`, `advance(y, h)`, `torch::cat({y, noisy})`
bool BatchOrigins::isMadeOf(const Expr *E, const ValueDecl *V) const {
  E = plain(E);
  const auto *Call = dyn_cast<CallExpr>(E);
  if (torchNameOf(Call) == "cat") {
    const InitListExpr *Joined = listIn(Call->getArg(0));
    return Joined && llvm::any_of(Joined->inits(), [&](const Expr *Part) {
             return rootOf(Part) == V;
           });
  }
  const FunctionDecl *F = calleeOf(Call);
  const bool IsOwn =
      Call && (!Index.callablesOf(Call).empty() ||
               (F && !isLibrary(F) && !Index.ownBodiesOf(F).empty()));
  return rootOf(E) == V ||
         (IsOwn && llvm::any_of(Call->arguments(), [&](const Expr *Arg) {
            return rootOf(Arg) == V;
          }));
}

/// Whether a variable is only given what is made of it.
bool BatchOrigins::isMadeOfItself(const Uses &U, const ValueDecl *V) const {
  return llvm::all_of(U.Made,
                      [&](const Expr *Made) { return isMadeOf(Made, V); });
}

/// Whether an argument is made in a training step, where it stands or by who
/// calls the function that it stands in.
bool BatchOrigins::isMadeInStep(const Made &Given, unsigned Depth) {
  const Expr *Arg = plain(Given.E);
  constexpr unsigned Most = 3;
  if (!Arg || Depth > Most || !isInStep(Arg->getExprLoc(), Given.In))
    return false;
  const auto *P = dyn_cast_or_null<ParmVarDecl>(rootOf(Arg));
  if (!P || (selectsRows(Arg) && !selectsOfEachRow(Arg, Index.Context)))
    return true;
  const std::vector<Made> All = givenTo(P);
  return !All.empty() && isMadeOfItself(usesOf(P, Given.In), P) &&
         llvm::all_of(All, [&](const Made &Outer) {
           return isMadeInStep(Outer, Depth + 1);
         });
}

/// A parameter of this function, or of a lambda in it.
void BatchOrigins::resolveParameter(const DeclRefExpr *E, const ParmVarDecl *P,
                                    const FunctionDecl *F, unsigned Depth) {
  const Uses &U = usesOf(P, F);
  // A state that is calculated anew is no batch either.
  if (OwnTensors && llvm::any_of(U.Made, [&](const Expr *Made) {
        return readsParameter(Made, F);
      }))
    return;
  const auto *Of = dyn_cast<FunctionDecl>(P->getDeclContext());
  const std::vector<Made> All = givenTo(P);
  // A closure that is given to a function which goes through batches: that
  // function may be for others, too, unless it makes them in its steps.
  const bool IsClosure = isOfClosure(Of);
  const bool IsStep = llvm::any_of(
      Index.Backwards, [&](const BackwardCall &B) { return B.Writer == Of; });
  const bool IsGiven =
      IsClosure && llvm::any_of(All, [&](const Made &Arg) {
        return !isWithin(P->getLocation(), Arg.In->getBody(), Text.SM) &&
               (IsStep || !isMadeInStep(Arg));
      });
  const bool Changed = ThroughClosure ? !isMadeOfItself(U, P) : !U.Made.empty();
  if (All.empty() || Changed || IsGiven || Given.count(Of))
    return shareAtUse(E, F);
  llvm::SaveAndRestore Through(ThroughClosure, ThroughClosure || IsClosure);
  // What is bound to a torch::Tensor& is shared out where it is made, or
  // behind the call.
  const bool Bound = isWritableReference(P->getType());
  bool Behind = false;
  for (const Made &Arg : All)
    if (Arg.E) {
      llvm::SaveAndRestore Keep(Variable, Bound ? plain(Arg.E) : Variable);
      Stayed = false;
      resolve(Arg.E, Arg.In, Depth + 1);
      Behind |= Bound && Stayed;
    }
  if (Behind)
    shareAtUse(E, F);
}

void BatchOrigins::resolveVariable(const DeclRefExpr *E, const FunctionDecl *F,
                                   unsigned Depth) {
  if (!isa<BindingDecl, VarDecl>(E->getDecl()))
    return shareAtUse(E, F);
  if (!Seen.insert(E->getDecl()).second)
    return;
  const Uses &U = usesOf(E->getDecl(), F);
  const auto *V = dyn_cast<VarDecl>(E->getDecl());
  if (!V) {
    const std::optional<ReturnedValue> Value = returnedValueOf(E);
    if (!Value || U.Written || U.Leaf || !U.Made.empty() ||
        !resolveReturned(*Value, F, Depth))
      shareAtUse(E, F);
    return;
  }
  if (const auto *P = dyn_cast<ParmVarDecl>(V))
    return resolveParameter(E, P, F, Depth);
  if (isParameter(E, F)) {
    // Points at which derivatives are taken: they stay leaves.
    if (!U.Made.empty() && U.Leaf && !isOneRow(E, F))
      share(E, F, /*Points=*/true);
    return;
  }
  if (!U.Made.empty() && llvm::all_of(U.Made, [&](const Expr *Made) {
        return isObservation(Made, ReadBy, Index);
      }))
    return;
  // A data set may be made of it, or the memory be filled later.
  const bool IsKept =
      !isInStep(V->getLocation(), F) &&
      (U.Handed || isDataSet(V) || llvm::any_of(U.Made, isLaidOverMemory));
  // Where it is made, or is it kept, changed, or made elsewhere? The elements
  // of a range have no text of their own that makes them.
  const bool Local = V->hasLocalStorage() && V->isLocalVarDecl() &&
                     !U.Written && (!U.Made.empty() || !U.Tied.empty()) &&
                     !isa<DecompositionDecl>(V) && !V->isCXXForRangeDecl() &&
                     !isWritableReference(V->getType()) && !IsKept;
  if (!Local || isReadByRows(V, F) || isWritten(V, F, Index) ||
      (isNamedBatch(V->getType()) && isTakenApart(V, F, Index)))
    return Variable == E && shareMembers(V, F) ? void() : shareAtUse(E, F);
  // Batch batch{x, y};
  if (llvm::any_of(U.Made, [](const Expr *Made) {
        return isa<InitListExpr>(plain(Made));
      }))
    return shareMembers(V, F) ? void() : shareAtUse(E, F);
  if (!U.Tied.empty()) {
    if (!U.Made.empty() ||
        !llvm::all_of(U.Tied, [&](const ReturnedValue &Value) {
          return resolveReturned(Value, F, Depth);
        }))
      shareAtUse(E, F);
    return;
  }
  // x = x.to(device): where it comes from is not seen.
  if (llvm::all_of(U.Made, [&](const Expr *Made) { return rootOf(Made) == V; }))
    return shareAtUse(E, F);
  for (const Expr *Made : U.Made) {
    const Expr *M = plain(Made);
    // What a model gives in a step is made in parts there.
    const bool Given = isGivenByModel(M) && isInStep(M->getExprLoc(), F);
    if (isMadeOf(M, V) || Loaded.in(M) || Given ||
        isNoBatch(M, Index.Context) || (OwnTensors && readsParameter(M, F)))
      continue;
    if (const auto *Other = dyn_cast<DeclRefExpr>(M)) {
      resolveVariable(Other, F, Depth + 1);
      continue;
    }
    // Made of what was made in the step: that is the batch.
    const bool IsOfRows = !isField(M, Index.Context) && knowsLayout(M) &&
                          resolveRows(M, F, Depth + 1);
    if (!IsOfRows && !share(M, F))
      shareAtUse(E, F);
  }
}

void BatchOrigins::shareAlike() {
  Variable = nullptr;
  StepsFirst = false;
  for (size_t I = 0; I < Found.size(); ++I) {
    const Batch B = Found[I];
    const std::string Selection = B.Points ? "" : selectionOf(B.E, Text);
    if (Selection.empty())
      continue;
    ReadBy = B.ReadBy;
    ReadIn = B.ReadIn;
    for (const VarDecl *V : tensorsBeside(B.E, B.In)) {
      const Uses &U = usesOf(V, B.In);
      const Expr *Init = plain(V->getInit());
      const auto IsOwn = [&](const Expr *Made) {
        return plain(Made) == Init || isMadeOf(Made, V);
      };
      if (Init != B.E && llvm::all_of(U.Made, IsOwn) && !U.Written &&
          !U.Leaf && !U.Handed && selectionOf(Init, Text) == Selection &&
          !Loaded.in(Init) && isOnlyRead(V, B.In))
        share(Init, B.In);
    }
  }
}
