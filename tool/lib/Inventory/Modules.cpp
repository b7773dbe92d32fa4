//===- Modules.cpp - Calls of models --------------------------------------===//

#include "Interpreter.h"
#include "Options.h"
#include "TorchTypes.h"

#include "llvm/ADT/StringMap.h"

#include <set>

using namespace accel::migrate;
using namespace clang;

namespace {
enum class ModuleKind {
  Linear,
  Conv1d,
  Conv2d,
  Conv3d,
  Embedding,
  PerSample,
  WithDim,
  Flatten,
  Recurrent,
  Functional,
  Container,
};
} // namespace

static std::optional<ModuleKind> kindOf(llvm::StringRef Class) {
  static const llvm::StringMap<ModuleKind> Table = [] {
    llvm::StringMap<ModuleKind> T;
#define ACCEL_MODULE(Kind, ...)                                                \
  for (llvm::StringRef Name : {__VA_ARGS__})                                   \
    T[Name] = ModuleKind::Kind;
#include "Modules.def"
    return T;
  }();
  auto It = Table.find(Class);
  if (It == Table.end())
    return std::nullopt;
  return It->second;
}

/// Remembers which model the loop trains and what it is given.
void Interpreter::noteModel(const Value &Self,
                            llvm::ArrayRef<const Expr *> Args,
                            llvm::ArrayRef<Value> Values) {
  if (BatchDepth == 0)
    return;
  if (Self.Object && !llvm::is_contained(Out->Models, Self.Object))
    Out->Models.push_back(Self.Object);
  for (unsigned I = 0; I < Args.size(); ++I)
    if (!Values[I].FromModel)
      noteBatch(Args[I], Values[I]);
}

/// `model->eval()` or `model->train()`.
void Interpreter::setMode(const Value &Model, bool Evaluates) {
  if (Model.Object) {
    Env.try_emplace(Model.Object, Slot{Model, 0}).first->second.V.Evaluates =
        Evaluates;
    ModesSet.insert(Model.Object);
    return;
  }
  // It may be any of those that are known.
  if (!Evaluates)
    for (auto &[Known, S] : Env) {
      S.V.Evaluates = false;
      ModesSet.insert(Known);
    }
}

/// Behind a call: what the callee set may differ from one of its ways out to
/// another, so that the models are not known to be in evaluation mode.
void Interpreter::forgetModes(const std::set<const ValueDecl *> &Set) {
  for (const ValueDecl *Model : Set)
    if (auto It = Env.find(Model); It != Env.end())
      It->second.V.Evaluates = false;
  ModesSet.insert(Set.begin(), Set.end());
}

bool Interpreter::evaluates(const ValueDecl *Model) const {
  auto It = Env.find(Model);
  return It != Env.end() && It->second.V.Evaluates;
}

/// Modules that do something else in training mode, with the samples of the
/// step or with random numbers for them.
static bool dependsOnMode(llvm::StringRef Class) {
  return Class.contains("BatchNorm") || Class.contains("Dropout") ||
         Class.contains("RReLU") || Class == "FunctionalImpl";
}

/// Modules that work on each element by itself.
static bool isActivation(llvm::StringRef Class) {
  static const std::set<std::string> Names = {
      "IdentityImpl",   "ReLUImpl",     "ReLU6Impl",      "LeakyReLUImpl",
      "ELUImpl",        "SELUImpl",     "CELUImpl",       "GELUImpl",
      "SiLUImpl",       "MishImpl",     "TanhImpl",       "SigmoidImpl",
      "SoftplusImpl",   "SoftsignImpl", "SoftshrinkImpl", "HardtanhImpl",
      "HardshrinkImpl", "TanhshrinkImpl", "ThresholdImpl", "LogSigmoidImpl"};
  return Names.count(Class.str()) != 0;
}

/// The number of dimensions of what a module of LibTorch makes.
int Interpreter::rankBehind(const CXXRecordDecl *Impl, int Rank) const {
  const std::optional<ModuleKind> Kind = kindOf(Impl->getName());
  if (!Kind)
    return -1;
  switch (*Kind) {
  case ModuleKind::Linear:
  case ModuleKind::PerSample:
  case ModuleKind::WithDim:
    return Rank;
  case ModuleKind::Embedding:
    return Rank < 0 ? -1 : Rank + 1;
  default:
    return -1;
  }
}

/// The class of LibTorch whose forward a class of the program inherits: that of
/// `struct Net : torch::nn::SequentialImpl` without a forward of its own.
static const CXXRecordDecl *inheritedForward(const CXXRecordDecl *Impl) {
  while (Impl && !isTorch(Impl)) {
    const CXXRecordDecl *D = Impl->getDefinition();
    if (!D || D->getNumBases() != 1)
      return nullptr;
    for (const CXXMethodDecl *M : D->methods())
      if (M->getIdentifier() && M->getName() == "forward")
        return nullptr;
    Impl = D->bases_begin()->getType()->getAsCXXRecordDecl();
  }
  return Impl && Impl->getIdentifier() && kindOf(Impl->getName()) ? Impl
                                                                  : nullptr;
}

/// Whether the runtime can be told that a call of a model works on what every
/// process has in full.
bool Interpreter::mayReplicate(const CallExpr *E,
                               llvm::ArrayRef<Value> Values) const {
  if (!Plan || !Splits || BatchDepth == 0 || inCallee() ||
      !holdsTensors(E->getType()) || Values.empty() ||
      llvm::any_of(Values, [](const Value &V) { return !V.replicated(); }))
    return false;
  // Behind the step it is no part of it.
  return Plan->Replicates ||
         (LastBackward.isValid() &&
          Context.getSourceManager().isBeforeInTranslationUnit(
              LastBackward, E->getBeginLoc()));
}

Value Interpreter::evalModule(const CXXRecordDecl *Impl, const Value &Self,
                              const CallExpr *E,
                              llvm::ArrayRef<const Expr *> Args,
                              llvm::ArrayRef<Value> Values) {
  if (mayCallInParts(E, Args, Values))
    if (std::optional<Value> Result =
            calledInParts(Impl, Self, E, Args, Values))
      return *Result;
  if (!mayReplicate(E, Values))
    return callModule(Impl, Self, E, Args, Values);
  const Effects Before = *Out;
  const Environment EnvBefore = Env;
  Value Result = callModule(Impl, Self, E, Args, Values);
  if (!Result.unknown() && Out->Refusals.size() == Before.Refusals.size())
    return Result;
  // Batch norm or dropout: as if no batch were being worked on.
  *Out = Before;
  Env = EnvBefore;
  Splits = false;
  Result = callModule(Impl, Self, E, Args, Values);
  Splits = true;
  if (!Result.unknown())
    Out->Replicated[plain(E)] = Stack.back();
  return Result;
}

Value Interpreter::callModule(const CXXRecordDecl *Impl, const Value &Self,
                              const CallExpr *E,
                              llvm::ArrayRef<const Expr *> Args,
                              llvm::ArrayRef<Value> Values) {
  // Losses have no parameters and are told by their name.
  OpCall Call;
  Call.Call = E;
  for (unsigned I = 0; I < Args.size(); ++I)
    Call.Operands.push_back({I == 0 ? "input" : I == 1 ? "target" : "", Args[I],
                             Values[I], holdsTensors(Args[I]->getType())});
  if (isTorch(Impl))
    if (std::optional<Value> Loss = evalLossModule(Impl, Call))
      return *Loss;

  if (const CXXRecordDecl *Base = inheritedForward(Impl);
      Base && !(E->getDirectCallee() && Index.isOwn(E->getDirectCallee())))
    Impl = Base;

  // The states of a recurrent module have their samples elsewhere.
  const bool Recurrent =
      isTorch(Impl) && kindOf(Impl->getName()) == ModuleKind::Recurrent;
  noteModel(Self, Recurrent ? Args.take_front(1) : Args, Values);
  Value Result;
  if (isTorch(Impl)) {
    const bool Outer = ModelEvaluates;
    ModelEvaluates |= Self.Object && evaluates(Self.Object);
    Result = evalTorchModule(Impl, E, Args, Values);
    ModelEvaluates = Outer;
  } else {
    // The method that is called; through a holder's operator() it is forward.
    const FunctionDecl *F = E->getDirectCallee();
    const auto *M = dyn_cast_or_null<CXXMethodDecl>(F);
    if (!M || !Index.isOwn(M)) {
      const CXXMethodDecl *Forward = nullptr;
      bool Several = false;
      if (const CXXRecordDecl *D = Impl->getDefinition())
        for (const CXXMethodDecl *Candidate : D->methods())
          if (Candidate->getIdentifier() &&
              Candidate->getName() == "forward" &&
              Candidate->getMinRequiredArguments() <= Args.size() &&
              Args.size() <= Candidate->getNumParams()) {
            Several |= Forward != nullptr;
            Forward = Candidate;
          }
      M = Several ? nullptr : Forward;
    }
    if (!M || !M->hasBody())
      return unknown("ACL0123", E,
                     "the model's forward is not to be seen, so that it is not "
                     "known whether it keeps samples apart",
                     "Put the definition of '" + Impl->getNameAsString() +
                         "::forward' into a file that is part of this one.");
    if (M->isVirtual() && !Impl->isEffectivelyFinal())
      return unknown("ACL0123", E,
                     "'" + M->getNameAsString() +
                         "' is virtual: which one runs is not known",
                     "Mark the class final, or call a method that is not "
                     "virtual.");
    Value ThisValue;
    ThisValue.Object = Self.Object;
    const bool Outer = ModelEvaluates;
    ModelEvaluates |= Self.Object && evaluates(Self.Object);
    Result = evalOwn(M, E, Args, Values, &ThisValue);
    ModelEvaluates = Outer;
  }
  Result.FromModel = true;
  for (const Value &V : Values)
    if (!Result.Gathered)
      Result.Gathered = V.Gathered;
  if (Result.replicated()) {
    bool Batch = false;
    for (const Value &V : Values)
      Batch |= V.MayHoldBatch;
    Result.MayHoldBatch = Batch && holdsTensors(E->getType());
    Result.Roots.clear();
  }
  return Result;
}

Value Interpreter::evalTorchModule(const CXXRecordDecl *Impl, const CallExpr *E,
                                   llvm::ArrayRef<const Expr *> Args,
                                   llvm::ArrayRef<Value> Values) {
  const std::string Class = Impl->getNameAsString();
  // A pair of states may be of two kinds, as long as each of them is known.
  const bool Pairs = kindOf(Class) == ModuleKind::Recurrent;
  bool Replicated = true;
  for (const Value &V : Values) {
    const Value *Bad = Pairs && !V.Elements.empty() ? firstUnknown(V.Elements)
                                                    : firstUnknown(V);
    if (Bad)
      return Value::unknownFor(Bad->Why);
    Replicated &= V.replicated();
  }
  if (Replicated) {
    // What every process has in full gives every process the same, unless the
    // runtime takes it for a part of the step's batch.
    const bool Mode =
        dependsOnMode(Class) ||
        (kindOf(Class) == ModuleKind::Container &&
         llvm::any_of(Index.Modules, [](const auto &Made) {
           return dependsOnMode(Made.first);
         }));
    if (Splits && BatchDepth > 0 && Mode && !ModelEvaluates &&
        llvm::any_of(Values, [](const Value &V) { return V.MayHoldBatch; }))
      return unknown("ACL0130", E,
                     "'" + spelled(E) +
                         "' works on tensors that are not of the batch that "
                         "this step works on, while dropout and batch norm "
                         "take them for it",
                     "Switch the model to evaluation before, with eval(), or "
                     "do it after the loop over batches.");
    Value Result;
    if (!Values.empty() && Values[0].Elements.empty())
      Result.Rank = rankBehind(Impl, Values[0].Rank);
    if (Result.Rank > 0)
      Result.MinRank = Result.Rank;
    return Result;
  }
  const std::optional<ModuleKind> Kind = kindOf(Class);
  const std::string Short =
      llvm::StringRef(Class).drop_back(4).str(); // Without "Impl".
  if (!Kind)
    return unknown("ACL0122", E,
                   "torch::nn::" + Short +
                       " is not known to keep the samples of a batch apart",
                   "Gather its input first, or leave the module out.");
  const Value &X = Values[0];
  if (!X.rows())
    return unknown("ACL0121", E,
                   "torch::nn::" + Short +
                       " is applied to a number that was calculated over the "
                       "batch");
  // One sample without a dimension for samples: its numbers are features.
  const int OneSample = *Kind == ModuleKind::Conv1d   ? 2
                        : *Kind == ModuleKind::Conv2d ? 3
                        : *Kind == ModuleKind::Conv3d ? 4
                        : *Kind == ModuleKind::Linear ||
                                Class == "LayerNormImpl" ||
                                Class == "BilinearImpl"
                            ? 1
                            : 0;
  if (OneSample && X.Rank == OneSample)
    return unknown("ACL0121", E,
                   "torch::nn::" + Short +
                       " is given a tensor of " + std::to_string(X.Rank) +
                       (X.Rank == 1 ? " dimension" : " dimensions") +
                       ", which is a single sample and cannot be split",
                   "Train on batches: tensors whose first dimension counts the "
                   "samples.");
  for (const Value &V : Values.drop_front())
    if (!V.rows() && !V.replicated())
      return unknown("ACL0100", E, "'" + spelled(E) + "' is not understood");
  const bool Inside = X.Rank > 0 && int(X.Dim) + 1 < X.Rank;
  if (X.Dim != 0 && *Kind != ModuleKind::Recurrent &&
      *Kind != ModuleKind::Embedding && *Kind != ModuleKind::WithDim &&
      !(Inside && (*Kind == ModuleKind::Linear || Class == "LayerNormImpl")) &&
      !isActivation(Class))
    return unknown("ACL0121", E,
                   "torch::nn::" + Short +
                       " is given a tensor whose samples are in dimension " +
                       std::to_string(X.Dim),
                   "Bring the dimension of the samples to the front before.");
  if (X.TakeTurns && (dependsOnMode(Class) || *Kind == ModuleKind::Recurrent) &&
      !llvm::StringRef(Class).contains("BatchNorm"))
    return unknown("ACL0121", E,
                   "torch::nn::" + Short +
                       " is given rows in which the samples take turns",
                   "Apply it before the dimensions are merged.");

  auto Dimension = [&](int64_t Dim) -> std::optional<Value> {
    switch (isBatchDim(Dim, X)) {
    case Zero::No:
      return std::nullopt;
    case Zero::Yes:
      return unknown("ACL0121", E,
                     "torch::nn::" + Short +
                         " works along dimension 0, over the samples of the "
                         "batch");
    case Zero::Perhaps:
      break;
    }
    return unknown("ACL0121", E,
                   "torch::nn::" + Short + " works along dimension " +
                       std::to_string(Dim) +
                       ", which may be the one of the samples");
  };
  auto Constructions = Index.Modules.find(Class);
  switch (*Kind) {
  case ModuleKind::Linear: {
    Value V = X;
    V.MinRank = std::max(V.MinRank, 2u);
    return V;
  }
  case ModuleKind::Conv1d:
  case ModuleKind::Conv2d:
  case ModuleKind::Conv3d: {
    Value V = X;
    V.Rank = 3 + static_cast<int>(*Kind) - static_cast<int>(ModuleKind::Conv1d);
    V.MinRank = V.Rank;
    return V;
  }
  case ModuleKind::Embedding: {
    Value V = X;
    V.Rank = X.Rank < 0 ? -1 : X.Rank + 1;
    V.MinRank = X.MinRank + 1;
    return V;
  }
  case ModuleKind::PerSample:
    return X;
  case ModuleKind::WithDim: {
    // Where it was made is not followed to here: all that are made must do.
    if (Constructions == Index.Modules.end())
      return unknown("ACL0121", E,
                     "the dimension of torch::nn::" + Short +
                         " cannot be seen");
    for (const CXXConstructExpr *Made : Constructions->second) {
      std::optional<OptionSet> Options = optionsOf(Made, Context);
      std::optional<int64_t> Dim;
      if (Options)
        if (const Expr *Given = Options->find("dim"))
          Dim = constantOf(Given, Context);
      if (Class == "GLUImpl" && Options && !Options->find("dim"))
        Dim = -1;
      if (!Dim)
        return unknown("ACL0121", Made,
                       "the dimension of torch::nn::" + Short +
                           " is not a constant");
      if (std::optional<Value> Bad = Dimension(*Dim))
        return *Bad;
    }
    return X;
  }
  case ModuleKind::Flatten: {
    if (Constructions != Index.Modules.end())
      for (const CXXConstructExpr *Made : Constructions->second) {
        std::optional<OptionSet> Options = optionsOf(Made, Context);
        const Expr *Start = Options ? Options->find("start_dim") : nullptr;
        const std::optional<int64_t> Dim =
            Start ? constantOf(Start, Context) : Options ? 1 : 0;
        if (!Dim || *Dim < 1)
          return unknown("ACL0121", Made,
                         "torch::nn::Flatten from dimension 0 on mixes the "
                         "samples of the batch");
      }
    Value V = X;
    V.Rank = 2;
    V.MinRank = 2;
    return V;
  }
  case ModuleKind::Recurrent:
    return evalRecurrent(Impl, E, Values);
  case ModuleKind::Functional: {
    if (Constructions == Index.Modules.end() || Index.UnseenModules.count(Class))
      return unknown("ACL0122", E,
                     "it is not seen how torch::nn::Functional is made");
    std::optional<Value> All;
    for (const CXXConstructExpr *Made : Constructions->second) {
      const Value One = evalFunctional(Made, E, Args[0], X);
      if (One.unknown())
        return Value::unknownFor(One.Why);
      if (!One.rows())
        return unknown("ACL0121", Made,
                       "this torch::nn::Functional does not return one row per "
                       "sample");
      All = All ? join(*All, One,
                       reason("ACL0121", Made->getExprLoc(),
                              "the program's torch::nn::Functional leave the "
                              "samples in different dimensions"))
                : One;
    }
    return All ? *All : X;
  }
  case ModuleKind::Container: {
    // What the containers of the program hold is followed one by one.
    Value V = X;
    V.Rank = -1;
    V.MinRank = 1;
    for (const CXXRecordDecl *Held : Index.Contained) {
      if (Held->getName() == Class)
        continue;
      Value One;
      if (isTorch(Held)) {
        One = V;
        if (!kindOf(Held->getName()) ||
            *kindOf(Held->getName()) == ModuleKind::Recurrent)
          return unknown("ACL0122", E,
                         "the container holds torch::nn::" +
                             Held->getName().drop_back(4).str() +
                             ", which is not known to keep the samples of a "
                             "batch apart");
        // Linear makes tensors of at least two dimensions; a softmax over the
        // last dimension behind it is over features.
        Value Wide = V;
        Wide.MinRank = 2;
        const Value Input[] = {Wide};
        One = evalTorchModule(Held, E, Args.take_front(1), Input);
      } else {
        const CXXMethodDecl *Forward = nullptr;
        if (const CXXRecordDecl *D = Held->getDefinition())
          for (const CXXMethodDecl *M : D->methods())
            if (M->getIdentifier() && M->getName() == "forward")
              Forward = M;
        if (!Forward || !Forward->hasBody())
          return unknown("ACL0123", E,
                         "the container holds '" + Held->getNameAsString() +
                             "', whose forward is not to be seen");
        // A block that has a container itself, which might hold such blocks:
        // they do what this one is then seen to do (Functions.cpp).
        const FunctionDecl *Body = nullptr;
        if (Forward->hasBody(Body) && llvm::is_contained(Stack, Body)) {
          KeepsRows.insert(Body);
          continue;
        }
        One = evalOwn(Forward, E, Args.take_front(1), Values.take_front(1),
                      nullptr);
      }
      if (One.unknown())
        return One;
      if (!One.rows())
        return unknown("ACL0121", E,
                       "the container holds '" + Held->getNameAsString() +
                           "', which does not return one row per sample");
    }
    return V;
  }
  }
  return X;
}
