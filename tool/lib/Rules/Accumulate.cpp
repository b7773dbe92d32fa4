//===- Accumulate.cpp - The scope of one training step --------------------===//
//
// The guard marks the step: what is split in it, and when gradients are averaged.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyAccumulate(RuleContext &Context) {
  for (const TrainingLoopFact &Loop : Context.Program.TrainingLoops)
    Context.insertLine(
        Loop.BodyTop, "accumulate",
        {{"step", Context.freeName(Loop.In, {"step", "accumulation",
                                             "training_step"})},
         {"accelerator", Context.accelerator(Loop.In)},
         {"model", Loop.Model}},
        "the body of this loop is one training step of this model",
        /*Priority=*/-10);
}
