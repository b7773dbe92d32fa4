//===- GatherMetrics.cpp - Outputs and targets of an evaluation -----------===//
//
// From the inserted line on the variables hold what one device would have.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

#include "llvm/ADT/StringExtras.h"

using namespace accel::migrate;

void accel::migrate::applyGatherMetrics(RuleContext &Context) {
  for (const VariablesFact &Gather : Context.Program.Gathers)
    Context.insertLine(
        Gather.At,
        Gather.Variables.size() == 1 ? "gather-one" : "gather-several",
        {{"variables", llvm::join(Gather.Variables, ", ")},
         {"accelerator", Context.accelerator(Gather.In, Gather.At.At)}},
        "from here on the metrics see the samples of all processes, in the "
        "order in which one device sees them");
}
