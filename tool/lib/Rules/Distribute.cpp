//===- Distribute.cpp - Batches that no loader makes ----------------------===//
//
// Every process makes the whole tensor, with equal random numbers, and holds its
// part of it from here on.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyDistribute(RuleContext &Context) {
  for (const Spelled &Batch : Context.Program.Batches)
    Context.wrap(Batch.Range, nullptr, "distribute",
                 {{"accelerator", Context.accelerator(Batch.In)}},
                 "the batch is complete here; the processes share out its rows");
}
