//===- Distribute.cpp - Batches that no loader makes ----------------------===//
//
// Every process makes the whole tensor, with equal random numbers, and holds its
// part of it from here on.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyDistribute(RuleContext &Context) {
  for (const BatchFact &Batch : Context.Program.Batches)
    Context.wrap(Batch.Range, nullptr,
                 Batch.StepsFirst ? "distribute-samples" : "distribute",
                 {{"accelerator", Context.accelerator(Batch.In, Batch.Range)}},
                 Batch.StepsFirst
                     ? "the batch is complete here; the processes share out its "
                       "samples, dimension 1 of what the model's layers take"
                     : "the batch is complete here; the processes share out its "
                       "rows");
}
