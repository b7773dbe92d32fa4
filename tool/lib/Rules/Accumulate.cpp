//===- Accumulate.cpp - The scope of one training step --------------------===//
//
// The guard marks the step: what is split in it, and when gradients are averaged.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyAccumulate(RuleContext &Context) {
  for (const TrainingLoopFact &Loop : Context.Program.TrainingLoops) {
    std::string Models;
    for (const std::string &Model : Loop.Models)
      Models += (Models.empty() ? "" : ", ") + Model;
    Context.insertLine(
        Loop.BodyTop, "accumulate",
        {{"step", Context.freeName(Loop.In, {"step", "accumulation",
                                             "training_step"})},
         {"accelerator", Context.accelerator(Loop.In)},
         {"models", Models}},
        Loop.Models.empty() ? "the body of this loop is one training step"
        : Loop.Models.size() > 1
            ? "the body of this loop is one training step of these models"
            : "the body of this loop is one training step of this model",
        /*Priority=*/-10);
  }
}
