//===- ShardState.cpp - States that are kept from batch to batch ----------===//
//
// The state of all samples is made before the loop; each process goes on with
// that of its samples.
//
//===----------------------------------------------------------------------===//

#include "AllRules.h"

using namespace accel::migrate;

void accel::migrate::applyShardState(RuleContext &Context) {
  for (const StateFact &State : Context.Program.States)
    Context.insertLine(State.At, "shard-state",
                       {{"variable", State.Variable},
                        {"dimension", std::to_string(State.Dim)},
                        {"accelerator", Context.accelerator(State.In)}},
                       "each process keeps the state of its part of the rows "
                       "from batch to batch");
}
