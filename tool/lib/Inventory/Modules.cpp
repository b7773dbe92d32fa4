//===- Modules.cpp - Calls of models --------------------------------------===//

#include "Interpreter.h"
#include "Options.h"
#include "TorchTypes.h"

#include "llvm/ADT/StringMap.h"

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
void Interpreter::noteModel(const Value &Self, const Expr *E,
                            llvm::ArrayRef<Value> Values) {
  if (BatchDepth == 0)
    return;
  if (Self.Object && !llvm::is_contained(Out->Models, Self.Object))
    Out->Models.push_back(Self.Object);
  for (const Value &V : Values) {
    if (!V.replicated() || !V.MayHoldBatch || V.FromModel)
      continue;
    if (!Out->FirstModelRead)
      Out->FirstModelRead = Top;
    if (V.Roots.empty())
      Out->UnnamedBatches.push_back(
          Text.finding("ACL0119", E->getExprLoc(),
                       "the batch that is given to '" + spelled(E) +
                           "' is not in a variable of the loop body",
                       "Name the complete batch first, and split it with "
                       "x = accelerator.shard_batch(x) before the model reads "
                       "it."));
    for (const VarDecl *Root : V.Roots)
      if (!llvm::is_contained(Out->BatchReads, Root))
        Out->BatchReads.push_back(Root);
  }
}

Value Interpreter::evalModule(const CXXRecordDecl *Impl, const Value &Self,
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

  noteModel(Self, E, Values);
  if (Splits && !inCallee() && BatchDepth > 0) {
    bool Whole = !Values.empty();
    for (const Value &V : Values)
      Whole &= V.replicated();
    if (Whole && llvm::any_of(Values, [](const Value &V) {
          return V.MayHoldBatch;
        }))
      return unknown("ACL0130", E,
                     "'" + spelled(E) +
                         "' applies the model to tensors that are not of the "
                         "batch that this step works on, while dropout and "
                         "batch norm take them for it",
                     "Do it after the loop over batches.");
  }
  Value Result;
  if (isTorch(Impl)) {
    Result = evalTorchModule(Impl, E, Args, Values);
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
    Result = evalOwn(M, E, Args, Values, &ThisValue);
  }
  Result.FromModel = true;
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
  if (const Value *Bad = firstUnknown(Values))
    return *Bad;
  bool Replicated = true;
  for (const Value &V : Values)
    Replicated &= V.replicated();
  if (Replicated)
    return Value();
  const std::string Class = Impl->getNameAsString();
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
  for (const Value &V : Values.drop_front())
    if (!V.rows() && !V.replicated())
      return unknown("ACL0100", E, "'" + spelled(E) + "' is not understood");

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
  case ModuleKind::Recurrent: {
    bool BatchFirst = Constructions != Index.Modules.end();
    if (BatchFirst)
      for (const CXXConstructExpr *Made : Constructions->second) {
        std::optional<OptionSet> Options = optionsOf(Made, Context);
        const Expr *Given = Options ? Options->find("batch_first") : nullptr;
        BatchFirst &= Given && constantOf(Given, Context).value_or(0) == 1;
      }
    if (!BatchFirst)
      return unknown("ACL0131", E,
                     "torch::nn::" + Short +
                         " has the samples in dimension 1 unless it is made "
                         "with batch_first(true), and batches are split along "
                         "dimension 0",
                     "Make it with batch_first(true) and give it tensors whose "
                     "first dimension counts the samples.");
    if (Values.size() > 1)
      return unknown("ACL0131", E,
                     "torch::nn::" + Short +
                         " is given a state, whose samples are in dimension 1",
                     "Leave the state out: it is zero then.");
    Value Result = X;
    Value State = unknown("ACL0131", E,
                          "the state of torch::nn::" + Short +
                              " has the samples in dimension 1");
    Value Sequence = X;
    Sequence.Rank = Sequence.MinRank = 3;
    Result.Elements = {Sequence, State};
    return Result;
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
