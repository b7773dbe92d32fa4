//===- Backward.cpp - Gradients are averaged ------------------------------===//
//
// The reduction of the loss decides the weight of this process's part.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyBackward(RuleContext &Context) {
  for (const BackwardFact &Backward : Context.Program.Backwards) {
    const bool Sum = Backward.Loss == Placement::SumOfRows;
    Context.wrap(
        Backward.Object, &Backward.Tail, Sum ? "backward-sum" : "backward-mean",
        {{"accelerator", Context.accelerator(Backward.In)}},
        Sum ? "the loss is a sum over the batch: the processes' gradients are "
              "added"
            : "the loss is a mean over the batch: the processes' gradients are "
              "averaged, each weighted by its samples");
  }
}
