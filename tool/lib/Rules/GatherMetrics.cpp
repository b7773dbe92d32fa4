//===- GatherMetrics.cpp - Metrics are computed on the whole batch --------===//
//
// From the inserted line on the variables hold what one device would have.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyGatherMetrics(RuleContext &Context) {
  for (const BatchVariablesFact &Gather : Context.Program.Gathers)
    Context.insertVariables(
        Gather, "gather",
        "from here on the metrics see the samples of all processes, in the "
        "order in which one device sees them");
}
