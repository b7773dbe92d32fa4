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
    const std::string Accelerator = Context.accelerator(Backward.In);
    const char *Why =
        Sum ? "the loss is a sum over the batch: the processes' gradients are "
              "added"
        : Backward.Loss == Placement::Replicated
            ? "the loss is the same on all processes, and so are its gradients"
            : "the loss is a mean over the batch: the processes' gradients are "
              "averaged, each weighted by its samples";
    if (Backward.RetainGraph.empty())
      Context.wrap(Backward.Object, &Backward.Tail,
                   Sum ? "backward-sum" : "backward-mean",
                   {{"accelerator", Accelerator}}, Why);
    else
      Context.wrap(Backward.Object, &Backward.Tail,
                   Sum ? "backward-sum-retain" : "backward-mean-retain",
                   {{"accelerator", Accelerator},
                    {"retain", Backward.RetainGraph}},
                   Why);
  }
}
