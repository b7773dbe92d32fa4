//===- Accumulate.cpp - The scope of one training step --------------------===//
//
// The guard marks the step: when gradients are brought together.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyAccumulate(RuleContext &Context) {
  for (const TrainingLoopFact &Loop : Context.Program.TrainingLoops) {
    std::string Models;
    for (const std::string &Model : Loop.Models)
      Models += (Models.empty() ? "" : ", ") + Model;
    if (Loop.Body.Close)
      Context.closeBraces(*Loop.Body.Close,
                          "the loop's body has a second statement");
    const std::string Step =
        Loop.Body.Top.At.Use ? std::string("accel_step")
        : Loop.Inner
            ? Context.freeName(Loop.In, {"inner_step", "inner_accumulation"})
            : Context.freeName(Loop.In,
                               {"step", "accumulation", "training_step"});
    Context.insertLine(
        Loop.Body.Top, "accumulate",
        {{"step", Step},
         {"accelerator", Context.accelerator(Loop.In, Loop.Body.Top.At)},
         {"models", Models}},
        std::string(Loop.Kind == TrainingLoopFact::Function
                        ? "each call of this function"
                    : Loop.Kind == TrainingLoopFact::Block
                        ? "this block"
                        : "the body of this loop") +
            " is one training step" +
            (Loop.Models.empty()      ? ""
             : Loop.Models.size() > 1 ? " of these models"
                                      : " of this model"),
        // A function may prepare what it then takes a step of.
        Loop.Kind == TrainingLoopFact::Function ? 10 : -10);
  }
}
