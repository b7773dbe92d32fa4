//===- Recurrent.cpp - Where the samples are in recurrent modules ---------===//

#include "Interpreter.h"
#include "Options.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// A state that is whole where it should be this process's: perhaps it is kept
/// from batch to batch, or only has to be made with another size.
void Interpreter::noteState(const Value &V) {
  const StateVariable State(V.Variable, 1);
  if (!V.Variable || !V.Shape || !BatchBody || !isKept(BatchBody, V.Variable))
    return noteWholeShape(V, 1);
  if (!llvm::is_contained(Out->WholeStates, State))
    Out->WholeStates.push_back(State);
}

/// RNN, LSTM, GRU: a sequence and states go in and come out. They check that
/// their input has three dimensions.
Value Interpreter::evalRecurrent(const CXXRecordDecl *Impl, const Expr *E,
                                 llvm::ArrayRef<Value> Values) {
  const std::string Class = Impl->getNameAsString();
  const std::string Short = "torch::nn::" + Class.substr(0, Class.size() - 4);
  const Value &X = Values[0];
  // Which object it is is not followed: all of this class must agree.
  std::optional<bool> BatchFirst;
  bool OneLayer = true, Seen = false;
  auto Made = Index.Modules.find(Class);
  if (Made != Index.Modules.end())
    for (const CXXConstructExpr *Construction : Made->second) {
      const std::optional<OptionSet> Options = optionsOf(Construction, Context);
      if (!Options)
        return unknown("ACL0131", Construction,
                       "the options of " + Short +
                           " cannot be seen, and so not which dimension counts "
                           "its samples",
                       "Write the options where the module is made.");
      auto Given = [&](llvm::StringRef Name,
                       int64_t Default) -> std::optional<int64_t> {
        const Expr *Value = Options->find(Name);
        return Value ? constantOf(Value, Context) : Default;
      };
      const std::optional<int64_t> First = Given("batch_first", 0);
      if (!First || (Seen && BatchFirst != (*First != 0)))
        return unknown("ACL0131", Construction,
                       "which dimension counts the samples of " + Short +
                           " is not the same everywhere, or cannot be seen",
                       "Make all of them with batch_first(true).");
      BatchFirst = *First != 0;
      OneLayer &= Given("num_layers", 1) == 1 && Given("bidirectional", 0) == 0;
      Seen = true;
    }
  if (!Seen || Index.UnseenModules.count(Class))
    return unknown("ACL0131", E,
                   "it is not seen how " + Short +
                       " is made, and so not which dimension counts its "
                       "samples");
  const unsigned Dim = *BatchFirst ? 0 : 1;
  if (X.Dim != Dim || X.TakeTurns)
    return unknown("ACL0131", E,
                   Short + " takes the samples from dimension " +
                       std::to_string(Dim) +
                       ", and is given a tensor whose samples are in dimension " +
                       std::to_string(X.Dim),
                   "Make it with batch_first(true) and give it tensors whose "
                   "first dimension counts the samples.");
  std::function<const Value *(const Value &)> NoState =
      [&](const Value &V) -> const Value * {
    for (const Value &Element : V.Elements)
      if (const Value *Bad = NoState(Element))
        return Bad;
    if (!V.Elements.empty())
      return nullptr;
    return V.rows() && V.Dim == 1 && !V.TakeTurns ? nullptr : &V;
  };
  for (const Value &V : Values.drop_front())
    if (const Value *Bad = NoState(V)) {
      if (Bad->replicated() && !Bad->MayHoldBatch && !Bad->Shape)
        continue; // Left out.
      noteState(*Bad);
      for (const Value &Element : V.Elements)
        noteState(Element);
      return unknown("ACL0131", E,
                     Short + " is given a state whose samples are not known to "
                             "be those of this process, in dimension 1",
                     "Make the state from the batch: torch::zeros({layers, "
                     "x.size(0), width}).");
    }
  Value Sequence = X;
  Sequence.Rank = Sequence.MinRank = 3;
  Sequence.OneInFront = false;
  Sequence.Elements.clear();
  Value State = Sequence;
  State.Dim = 1;
  State.OneInFront = OneLayer;
  State.MaybeFolded = X.MaybeFolded;
  Value Result = Sequence;
  if (Class == "LSTMImpl") {
    Value Pair = State;
    Pair.Elements = {State, State};
    Result.Elements = {Sequence, Pair};
  } else {
    Result.Elements = {Sequence, State};
  }
  return Result;
}
