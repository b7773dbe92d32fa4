//===- DataParallel.cpp - Models called on parts of a whole batch ---------===//
//
// Where a loss cannot be calculated from a part of the batch, or where nothing
// is known of how a batch is made, all processes do what one device does, and
// only the calls of models are shared out: each process calls the model on its
// rows, and has the output of all of them behind it. What comes before and
// behind may be anything.
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// Whether the runtime can gather values of this type: tensors, and lists, pairs
/// and tuples of them.
static bool isGatherable(QualType T) {
  if (isTensor(T))
    return true;
  const auto *D = dyn_cast_or_null<ClassTemplateSpecializationDecl>(recordOf(T));
  if (!D || !D->getIdentifier() || !isInStd(D))
    return false;
  const TemplateArgumentList &Args = D->getTemplateArgs();
  const llvm::StringRef Name = D->getName();
  auto IsType = [](const TemplateArgument &A) {
    return A.getKind() == TemplateArgument::Type &&
           isGatherable(A.getAsType());
  };
  if (Name == "vector" || Name == "array" || Name == "optional")
    return IsType(Args[0]);
  if (Name == "pair")
    return IsType(Args[0]) && IsType(Args[1]);
  return Name == "tuple" && Args.size() == 1 &&
         Args[0].getKind() == TemplateArgument::Pack &&
         llvm::all_of(Args[0].pack_elements(), IsType);
}

/// Whether the call spells the model that it is a call of.
static bool namesModel(const CallExpr *E) {
  if (const auto *Operator = dyn_cast<CXXOperatorCallExpr>(E))
    return Operator->getOperator() == OO_Call;
  const auto *Member = dyn_cast<CXXMemberCallExpr>(E);
  const FunctionDecl *F = Member ? Member->getMethodDecl() : nullptr;
  return F && F->getIdentifier() && F->getName() == "forward" &&
         !isa<CXXThisExpr>(plain(Member->getImplicitObjectArgument()));
}

/// Whether the arguments are tensors of whole batches, and numbers.
bool Interpreter::mayCallInParts(const CallExpr *E,
                                 llvm::ArrayRef<const Expr *> Args,
                                 llvm::ArrayRef<Value> Values) const {
  if (!InParts || inCallee() || !namesModel(E) || !isGatherable(E->getType()))
    return false;
  bool Tensors = false;
  for (unsigned I = 0; I < Args.size(); ++I) {
    if (isa<CXXDefaultArgExpr>(Args[I]))
      continue;
    const QualType T = plain(Args[I])->getType();
    if (T->isArithmeticType() && Values[I].replicated())
      continue;
    if (!isTensor(T) || !Values[I].replicated() || !Values[I].MayHoldBatch ||
        Values[I].empty() || Values[I].Rank == 0)
      return false;
    Tensors = true;
  }
  return Tensors;
}

/// Whether each tensor of the value has the rows of a sample side by side in
/// dimension 0.
static bool allRows(const Value &V) {
  return V.Elements.empty() ? V.plainRows() : llvm::all_of(V.Elements, allRows);
}

/// What every process has behind the call.
static Value gathered(const Value &Rows) {
  Value V;
  V.MayHoldBatch = true;
  V.FromModel = true;
  V.Rank = Rows.Rank;
  V.MinRank = Rows.MinRank;
  for (const Value &Element : Rows.Elements)
    V.Elements.push_back(gathered(Element));
  return V;
}

/// Whether the value is the same on all processes, as is all that it holds.
static bool isEqual(const Value &V) {
  return V.Elements.empty() ? V.replicated() || V.is(Placement::PerProcess)
                            : llvm::all_of(V.Elements, isEqual);
}

/// Whether a variable lives longer than the call of a model: a member, which it
/// may keep its rows in, or one of the function that calls it.
static bool outlives(const ValueDecl *V, const FunctionDecl *Caller) {
  const auto *Variable = dyn_cast<VarDecl>(V);
  return !Variable || Variable->hasGlobalStorage() ||
         Variable->getParentFunctionOrMethod() == Caller;
}

/// The call with its tensors split, where the model is seen to keep the samples
/// apart and to do nothing else with them. Nothing has changed where not.
std::optional<Value>
Interpreter::calledInParts(const CXXRecordDecl *Impl, const Value &Self,
                           const CallExpr *E, llvm::ArrayRef<const Expr *> Args,
                           llvm::ArrayRef<Value> Values) {
  std::vector<Value> Parts(Values.begin(), Values.end());
  for (unsigned I = 0; I < Args.size(); ++I)
    if (isTensor(plain(Args[I])->getType()))
      Parts[I] = Value::partOf(Values[I]);

  Effects *Recording = Out;
  const LoopPlan *OuterPlan = Plan;
  const bool OuterSplits = Splits;
  const Environment Before = Env;
  LoopPlan Local;
  Effects Tried;
  std::optional<Value> Result;
  Plan = &Local;
  Splits = true;
  InParts = false;
  ++BatchDepth;
  // Once more where the shapes that it spells have to be written for a part.
  for (int Round = 0; Round < 5 && !Result; ++Round) {
    Env = Before;
    Tried = Effects();
    Out = &Tried;
    const Value V = callModule(Impl, Self, E, Args, Parts);
    // What it leaves in a member would be taken for that of the whole batch.
    const bool Leaves = llvm::any_of(Env, [&](const auto &Slot) {
      return !isa<FunctionDecl>(Slot.first) &&
             outlives(Slot.first, Stack.back()) && !isEqual(Slot.second.V) &&
             !(Before.count(Slot.first) &&
               Before.at(Slot.first).V == Slot.second.V);
    });
    if (Tried.Refusals.empty() && Tried.Reads.empty() && allRows(V) &&
        !Leaves) {
      Result = gathered(V);
      break;
    }
    bool More = false;
    for (const auto &Shape : Tried.WholeShapes)
      if (!llvm::is_contained(Local.LocalShapes, Shape)) {
        Local.LocalShapes.push_back(Shape);
        More = true;
      }
    if (!More)
      break;
  }
  --BatchDepth;
  InParts = true;
  Splits = OuterSplits;
  Plan = OuterPlan;
  Out = Recording;
  if (!Result) {
    Env = Before;
    return std::nullopt;
  }
  Out->append(Tried);
  if (Self.Object && !llvm::is_contained(Out->Models, Self.Object))
    Out->Models.push_back(Self.Object);
  Out->Parallel[E] = Stack.back();
  return Result;
}

/// Whether a training loop over a loader, which cannot be split, could be
/// trained with every process reading whole batches.
bool Interpreter::wouldDoInParts(const Stmt *S, const BatchLoop &Facts,
                                 const CompoundStmt *Body) {
  const Environment Before = Env;
  BatchLoop Unsplit = Facts;
  Unsplit.Unsplit = true;
  const bool Would = modelsInParts(S, Unsplit, Body).has_value();
  Env = Before;
  return Would;
}

/// The loop as it stands, with its calls of models in parts; nothing where there
/// are none, or where something is left that is not the same on all processes.
std::optional<Effects>
Interpreter::modelsInParts(const Stmt *S, const BatchLoop &Facts,
                           const CompoundStmt *Body) {
  LoopPlan P;
  P.InParts = true;
  Effects Tried = attempt(S, Facts, P);
  Effects::Loop Loop;
  Loop.Facts = &Facts;
  Loop.Body = Body;
  Loop.Models = modelsOf(S, Tried);
  Loop.Backwards = Tried.Backwards;
  Loop.Whole = Loop.InParts = true;
  for (const Effects::Backward &B : Tried.Backwards) {
    checkBackward(B, Tried);
    if (!B.Loss.replicated())
      return std::nullopt;
  }
  if (!Tried.Refusals.empty() || !Tried.Reads.empty() || Tried.Parallel.empty())
    return std::nullopt;
  if (Facts.Training)
    Tried.Loops.push_back(std::move(Loop));
  return Tried;
}
