//===- KeptStates.cpp - States that are kept from batch to batch ----------===//
//
// h = zeros({layers, batch, width}) before the loop, and in each pass
// std::tie(y, h) = lstm(x, h): sample i of a batch goes on where sample i of the
// last one has ended. Batches of equally many samples are shared out alike, so a
// process's part of the state stays with its part of the batches, and only the
// first state has to be split, before the loop. Where the batches are not
// equally many, the recurrent layer itself refuses the state, on one device as
// on several.
//
//===----------------------------------------------------------------------===//

#include "Assignments.h"
#include "Interpreter.h"
#include "TorchTypes.h"

using namespace accel::migrate;
using namespace clang;

/// Whether the variable is a tensor that is made before a batch loop and set in
/// its body, so that a pass finds there what the last one has left.
bool Interpreter::isKept(const CompoundStmt *Body, const ValueDecl *V) const {
  const SourceManager &SM = Context.getSourceManager();
  const SourceLocation Begin = Body->getBeginLoc();
  return isTensor(V->getType()) && isAssignable(V) &&
         SM.isBeforeInTranslationUnit(V->getLocation(), Begin) &&
         isSetBehind(Body, V, Begin, SM);
}

/// The loop begins with what the plan has split.
void Interpreter::startStates() {
  for (const auto &[Variable, Dim] : Plan->States) {
    Value &State = Env[Variable].V;
    const auto *Shape = dyn_cast_or_null<InitListExpr>(State.Shape);
    if (!State.replicated() || !Shape || Dim >= Shape->getNumInits())
      continue;
    const unsigned Rank = Shape->getNumInits();
    const bool OneInFront = constantOf(Shape->getInit(0), Context) == 1;
    State = Value::rowsOf(Rank, Rank);
    State.Dim = Dim;
    State.OneInFront = OneInFront;
  }
}
