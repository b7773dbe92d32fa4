//===- ShardBatch.cpp - Batches that no loader makes are split ------------===//
//
// Each process makes the whole batch, with equal random numbers, and goes on with
// its part.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyShardBatch(RuleContext &Context) {
  for (const BatchVariablesFact &Shard : Context.Program.Shards)
    Context.insertVariables(Shard, "shard",
                            "the batch is complete here; each process goes on "
                            "with its part of the rows");
}
